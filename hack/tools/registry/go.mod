// The image registry that the image's push is tried against: a module of its own, so that its dependencies never move the
// ones of the controller.
module github.com/bizflycloud/karpenter-provider-bizflycloud/hack/tools/registry

go 1.26.11

tool github.com/google/go-containerregistry/cmd/registry

require github.com/google/go-containerregistry v0.22.1 // indirect
