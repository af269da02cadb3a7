// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

// authority is a certificate authority, and authorityHash kubeadm's pin of it, made with openssl:
//
//	openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | sha256sum
const (
	authority = `-----BEGIN CERTIFICATE-----
MIIBgTCCASegAwIBAgIUOdU/Cdcto6+f8UiVj+l0YcJhI9EwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjExOTE0MTBaGA8yMTI2MTAy
ODE5MTQxMFowFTETMBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABNzuLJlMDni/eE9X7C7WbMvQnGYp5y7W7mvA6DgIgPOIR+D/nFha
Q/9Z4YC8tROmvovnzuC4uUuW+mCN+SF6itCjUzBRMB0GA1UdDgQWBBT0VCv8OeHQ
3tSbKuq+7jD9Y39w5DAfBgNVHSMEGDAWgBT0VCv8OeHQ3tSbKuq+7jD9Y39w5DAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIAbRNtt4fwR7Gp3tJ+Zq
DASnZKnjy3iJRoz31NG0J/oFAiEAyE3DEtm8t/0mcXtsaWJCOHSjxl6UyC5vgYbE
sEZ0p+w=
-----END CERTIFICATE-----
`
	authorityHash = "sha256:bb04fbd79cfbffec9bdb9e5c583525604046ac05ad9dcc95fada9904b0bfb530"
)
