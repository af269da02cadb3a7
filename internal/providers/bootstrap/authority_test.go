/*
Copyright The Karpenter Provider BizFly Cloud Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

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
