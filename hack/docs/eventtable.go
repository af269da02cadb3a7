// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/bizflycloud/karpenter-provider-bizflycloud/internal/events"

// Kinds of the objects that events are about.
const (
	kindNodeClaim      = "NodeClaim"
	kindNodePool       = "NodePool"
	kindNodeClass      = "BizflyNodeClass"
	kindProviderConfig = "ProviderConfig"
	kindNode           = "Node"
)

// eventDoc is what a reader of an event needs to know about its reason.
type eventDoc struct {
	// Reason is the event's reason; users and alerts match it, so it never changes.
	Reason string
	// Warning is true where a user may have to act.
	Warning bool
	// Object is the kind of object that it is about.
	Object string
	// Meaning is what has been decided or has happened.
	Meaning string
	// Remedy is what to do about it.
	Remedy string
}

// nothing is the remedy where all is as it should be; the page leaves it out.
const nothing = "Nothing."

// eventDocs are all reasons, in the order of a node's life.
var eventDocs = []eventDoc{
	{events.ReasonServerLaunched, false, kindNodeClaim,
		"Flavor, zone and price, and why: `Cheapest`, `FailedOver` after a rejection, or `Found` after a create request whose answer was lost.",
		nothing},
	{events.ReasonOfferingUnavailable, true, kindNodeClaim,
		"No capacity for the flavor in the zone. The next cheapest is tried.",
		"If it is frequent, allow more flavors and zones in the NodePool."},
	{events.ReasonLaunchRejected, true, kindNodeClaim,
		"Rejected for another reason than capacity. The next offering is tried, unless NodeClass or credentials are to blame.",
		"Read the quoted answer: image, network, key, or rights of the credentials."},
	{events.ReasonLaunchFailed, true, kindNodeClaim,
		"BizFly Cloud could not build the server, or it disappeared before its node had registered. The NodeClaim is replaced.",
		"If it repeats, ask BizFly Cloud with the server's name."},
	{events.ReasonNodeNotRegistered, true, kindNodeClaim,
		"The node did not join within 15 minutes.",
		"See [a server that does not join](../operate/nodes-and-hosts.md#a-server-that-does-not-join)."},
	{events.ReasonLaunchSlow, true, kindNodeClaim,
		"The server has been in BUILD for five minutes.",
		"Wait; after 15 minutes the NodeClaim is replaced."},
	{events.ReasonNoCompatibleFlavor, true, kindNodePool,
		"No flavor, available or not, satisfies the NodePool's requirements.",
		"Change the requirement that the message names to one of the values that it lists."},
	{events.ReasonLaunchesPaused, true, kindNodeClass,
		"No server of the NodeClass is launched [for some minutes](../concepts/placement.md#when-a-launch-fails). Where nodes did not " +
			"register, one launch at a time is tried then.",
		"The message has the last failure: quotas, networks, image, firewalls, user data or permissions. A change of the NodeClass ends the pause."},
	{events.ReasonAccountLimit, true, kindNodeClaim,
		"No balance, or rejected credentials; all launches pause and are tried again each minute.",
		"Top up the account, or correct the credentials."},
	{events.ReasonQuotaTooSmall, true, kindNodeClaim,
		"The quota does not allow this size: it and larger ones are unavailable for five minutes.",
		"Raise the quota of vCPUs or memory."},
	{events.ReasonNodePoolUnlimited, true, kindNodePool,
		"Nothing limits what the NodePool launches. Published once a day.",
		"Set its `spec.limits`, or `MAX_SERVERS` or `MAX_VND_PER_HOUR`."},
	{events.ReasonNodeDrifted, false, kindNodeClaim,
		"The server differs from its NodeClass: `NodeClassDrift`, `ImageDrift`, `UserDataDrift`, `FlavorDrift`, `ZoneDrift`, " +
			"`NetworkDrift`, `DiskDrift` or `BillingPlanDrift`. Core replaces it.",
		"Pin the image, or set disruption budgets."},
	{events.ReasonServerUpdated, false, kindNodeClaim,
		"Firewalls or network plan of the running server were changed to match its NodeClass.",
		nothing},
	{events.ReasonServerUpdateFailed, true, kindNodeClaim,
		"Firewalls or network plan of the running server could not be changed; it is tried again.",
		"If it repeats, do what the message asks for."},
	{events.ReasonServerNotRunning, true, kindNodeClaim,
		"The server is stopped, suspended, in ERROR or missing, and its kubelet is silent.",
		"[Node repair](../concepts/disruption.md#node-repair) replaces the node where it is on; else start the server or delete the NodeClaim."},
	{events.ReasonServerRunning, false, kindNodeClaim, "A server that did not run runs again.", nothing},
	{events.ReasonGarbageCollected, false, kindProviderConfig,
		"A server of this cluster had no NodeClaim and is deleted with its root disk.",
		"If it is frequent, find out why launches fail."},
	{events.ReasonWouldGarbageCollect, true, kindProviderConfig,
		"A server has no NodeClaim and would be deleted, if this were no dry run.",
		"Set `GARBAGE_COLLECTION_DRY_RUN=false` when you agree."},
	{events.ReasonGarbageCollectionSuspended, true, kindProviderConfig,
		"So many servers with a node have no NodeClaim that NodeClaims were lost. Nothing is deleted.",
		"See [its alert](../operate/troubleshooting.md#karpenterbizflygarbagecollectionsuspended)."},
	{events.ReasonServerLeft, true, kindNodeClaim,
		"The NodeClaim is deleted, but nothing proves its server to be this cluster's any more: the server is kept.",
		"If it is this NodeClaim's, delete it with its disks by hand."},
	{events.ReasonNodeSmallerThanPlanned, true, kindNodeClaim,
		"The node offers pods noticeably less than planned. From the second such node on Karpenter plans with it, though with no less than " +
			"a third of the estimate. Below that it launches another server for the same pods each time.",
		"Set [`spec.kubelet`](bootstrap.md#the-kubelets-settings) to plan with it at once, for a small file system `systemReserved: {ephemeral-storage: ...}`."},
	{events.ReasonServerHeld, true, kindNodeClaim,
		"The server was launched for another NodeClaim, as after a restore from a backup. It is deleted with this NodeClaim.",
		"Unless NodeClaims were restored, delete the NodeClaim."},
	{events.ReasonControlPlaneUnconfirmed, true, kindNodeClaim,
		"The cluster may be a clone: nothing is launched, deleted or rebooted for this NodeClaim.",
		"Scale a clone to 0 replicas, or [confirm that it is none](../concepts/ownership.md#clones-of-a-cluster)."},
	{events.ReasonServerKept, true, kindProviderConfig,
		"A server without NodeClaim has this cluster's metadata and a name of its own, like a copy of a node. It is kept.",
		"Delete it, or remove its metadata `bizfly-karpenter-cluster-uid`."},
	{events.ReasonServerDeletionFailed, true, kindNode,
		"The server still exists ten minutes after its deletion began, or BizFly Cloud rejects the deletion. It is tried again; NodeClaim " +
			"and Node stay.",
		"Ask BizFly Cloud with the server's id; the log has its answers."},
	{events.ReasonDiskDeletionFailed, true, kindNode,
		"A disk of a deleted server is still paid for: it has a snapshot, or a user may have detached or restored it.",
		"Delete its snapshots or the disk, or rename it to keep it."},
	{events.ReasonAddressKept, true, kindNode,
		"An address of a deleted server is still there: a user may have converted it to a paid one to keep it. It is never released.",
		"Rename it, or release it in BizFly Cloud's console."},
	{events.ReasonLeaveFailed, true, kindNode,
		"The server is deleted, but BKE did not remove its node. It is not repeated, and a controller that ends before does not report it.",
		"If the node stays, remove it in BizFly Cloud's console."},
	{events.ReasonNodeClassStale, true, kindNodeClass,
		"A list of the cloud cannot be read. What was resolved stays in use; launches go on.",
		"If it lasts, check the API, and the rights of the credentials."},
	{"ZoneNotFound", true, kindNodeClass, "`spec.zones` names a zone that the region does not have.", "Correct it; the message lists what there is."},
	{"NoZones", true, kindNodeClass, "No zone is left.", "Widen `spec.zones`."},
	{"ImageNotFound", true, kindNodeClass,
		"No image matches `spec.imageSelectorTerms`, or BKE has published no worker image for the version.",
		"Use `alias: bke@latest`, or a term that the message lists."},
	{"ImageUnsuitable", true, kindNodeClass, "The image does not suit `spec.bootstrapMode` or `spec.userData`.", "Change one of them."},
	{"NetworkNotFound", true, kindNodeClass, "A VPC network does not exist.", "Correct `spec.networkSelectorTerms`."},
	{"FirewallNotFound", true, kindNodeClass, "A firewall does not exist.", "Correct `spec.firewallSelectorTerms`."},
	{"SSHKeyNotFound", true, kindNodeClass,
		"The SSH key does not exist, or belongs to another user.",
		"Correct `spec.sshKeyName`, or upload the key as the user of the credentials."},
	{"RootDiskTooSmall", true, kindNodeClass,
		"The image or snapshot does not fit on the root disk.",
		"Raise `spec.rootDisk.size` to the size in the message."},
	{"DiskNotSold", true, kindNodeClass,
		"No zone of the NodeClass has the volume type of a disk.",
		"Choose one that the message lists, or `medium`."},
	{"DisksNotSoldTogether", true, kindNodeClass, "No server can have all disks at once.", "Choose volume types of one category, or `medium`."},
	{"FlavorNotFound", true, kindNodeClass, "No flavor matches `spec.flavorSelectorTerms`.", "Correct them; the message lists what there is."},
	{"NoFlavors", true, kindNodeClass,
		"Zones, networks, billing plan, disks and flavor terms leave no flavor.",
		"Change the field that the message names."},
	{"NothingLaunchable", true, kindNodeClass,
		"Static NodePools lack nodes, and nothing that they allow is available; they wait.",
		"Allow more flavors or zones, or wait."},
	{"BootstrapNotConfigured", true, kindNodeClass,
		"Cluster id, join token or join endpoint are missing.",
		"Set `bke.discoverFromPool`, or `bke.clusterID` and the key `bke_cluster_token`, or `bootstrapMode: Custom` with user data."},
	{"UserDataInvalid", true, kindNodeClass,
		"The template of the user data cannot be used.",
		"Correct it; see [its variables](bootstrap.md#what-templates-can-use)."},
	{"UserDataSecretUnusable", true, kindNodeClass,
		"The Secret of `spec.userDataFrom` does not exist, may not be read, or lacks the key.",
		"Create it in the controller's namespace, and list it in the chart's `userDataSecrets`."},
	{"JoinTokensDisabled", true, kindNodeClass,
		"`spec.joinToken` needs rights that the controller does not have.",
		"Set the chart's value `joinTokens.enabled`."},
	{"NoEgress", true, kindNodeClass,
		"Servers get no public address, and their networks have no internet gateway. Launches go on.",
		"Set `spec.publicIPv4: true`, attach a gateway, or [mirror images](../how-to/servers.md#run-without-public-addresses)."},
	{"SavingPlanOnDynamicNodePool", true, kindNodeClass,
		"Nodes come and go on a plan that is prepaid at each create, and perhaps not refunded at a delete.",
		"Use `billingPlan: OnDemand`, or NodePools with `spec.replicas`."},
	{events.ReasonWaitingOnNodeClaimTermination, false, kindNodeClass,
		"The NodeClass is being deleted and stays while a NodeClaim uses it.",
		"Delete the NodePools that use it."},
	{"SecretForbidden", true, kindProviderConfig,
		"The Secret with the credentials may not be read.",
		"Name the one that the Role grants, or change the chart's `credentials.existingSecret`."},
	{"CredentialsInvalid", true, kindProviderConfig,
		"BizFly Cloud rejects the credentials, they are incomplete, or `BIZFLY_CLOUD_ALLOWED_HOSTS` does not list the host. The active ones stay.",
		"Correct the Secret, which is read again within seconds, or add the host to the chart's `cloud.allowedHosts`."},
	{"EndpointUnreachable", true, kindProviderConfig,
		"The API does not answer. Launches wait.",
		"Check `spec.endpoint` and the egress of the controller."},
	{"ScopeChanged", true, kindProviderConfig,
		"The configuration is for another host, region or project than the servers that exist. It is rejected.",
		"Restore the former one, or first delete all NodeClaims ([scope pinning](../concepts/ownership.md#scope-pinning))."},
	{"ControlPlaneChanged", true, kindProviderConfig,
		"None of the recorded API servers runs: a clone, or a restore onto new API servers. No server is launched, deleted or rebooted, and garbage collection only reports.",
		"Scale a clone to 0 replicas, or [confirm that it is none](../concepts/ownership.md#clones-of-a-cluster)."},
	{"ConfigMapUnusable", true, kindProviderConfig,
		"The tuning ConfigMap does not exist, is not the one that the Role grants, or cannot be read; the active values stay.",
		"Create it, correct `spec.tuningConfigMapRef`, or check the API server, as the message explains."},
	{events.ReasonTuningIgnored, true, kindProviderConfig,
		"A key of the tuning ConfigMap is invalid, and keeps its last valid value.",
		"Correct the [key](options.md#tuning-keys)."},
}

// coreEventDocs are the events of Karpenter itself about the rest of a node's life.
var coreEventDocs = []eventDoc{
	{"FailedScheduling", true, "Pod",
		"No NodePool can launch a node for the pod.",
		"See [pods stay pending](../operate/troubleshooting.md#pods-stay-pending)."},
	{"Nominated", false, "Pod", "The pod is planned for a node or a NodeClaim.", nothing},
	{"NoCompatibleInstanceTypes", true, kindNodePool, "The NodePool's requirements leave no instance type.", "See `NoCompatibleFlavor`."},
	{"InsufficientCapacityError", true, kindNodeClaim + ", Pod",
		"The NodeClaim ends without a server, because every offering tried was rejected, or for the reason with which the message begins, " +
			"as `NodeClassUnresolved`, `CapacityTypeUnsupported` or `LaunchIntentUnreadable`. Karpenter plans anew within seconds.",
		"Do what the message asks for; see the other events of the NodeClaim."},
	{"InsufficientCapacityError: LaunchNotSent", true, kindNodeClaim + ", Pod",
		"Rate limit, connection or a busy API server held the create request back until core's launch timeout was near, or BizFly Cloud " +
			"answered 429 with a later time. The NodeClaim is replaced.",
		"Unless it is a burst, check the API, or raise `LAUNCH_TIMEOUT`, and the rate limits where no call is `Throttled`."},
	{"InsufficientCapacityError: LaunchOutcomeUnknown", true, kindNodeClaim + ", Pod",
		"BizFly Cloud never reported the result. The NodeClaim is replaced, and a server that appears late garbage collected.",
		"Check the API (dashboard \"API health\")."},
	{"InsufficientCapacityError: MaxServersReached, MaxVNDPerHourReached, SpendingUnknown", true, kindNodeClaim + ", Pod",
		"`MAX_SERVERS` or `MAX_VND_PER_HOUR` is reached, or not known to be free. The NodeClaim ends.",
		"Delete what is not needed, raise the [limit](../concepts/pricing.md#limit-the-bill), or add the price that the condition " +
			"`WithinSpendingLimits` of the ProviderConfig names."},
	{"Launched, Registered, Initialized, Drifted", false, kindNodeClaim, "A condition of the NodeClaim changed.", nothing},
	{"DisruptionLaunching, DisruptionWaitingReadiness, DisruptionTerminating", false, kindNodeClaim + ", " + kindNode,
		"A node is being replaced or removed.",
		nothing},
	{"DisruptionBlocked, Unconsolidatable", false, kindNodeClaim + ", " + kindNode + ", " + kindNodePool,
		"A node stays: a PodDisruptionBudget, `do-not-disrupt`, a budget, or pods that fit nowhere for less.",
		nothing},
	{"NodeRepairBlocked", true, kindNodeClaim + ", " + kindNodePool,
		"More than a fifth of the nodes are unhealthy: none is replaced.",
		"Look for a common cause: network, image, account."},
	{"Disrupted, Evicted, FailedDraining, AwaitingVolumeDetachment, TerminationGracePeriodExpiring", false, "Pod, " + kindNode,
		"The steps of a drain. `FailedDraining`: a pod cannot be evicted. `AwaitingVolumeDetachment`: a volume is still attached.",
		"Correct the PodDisruptionBudget, or set `terminationGracePeriod`; check the CSI driver."},
	{"FailedConsistencyCheck", true, kindNodeClaim + ", " + kindNode,
		"A node differs from its NodeClaim.",
		"Compare its capacity with the flavor's."},
}
