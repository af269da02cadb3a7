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
	// kindNamespace stands for the cluster, where no object of it is left to speak about.
	kindNamespace = "Namespace kube-system"
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

// nothing is the remedy where all is as it should be.
const nothing = "Nothing."

// eventDocs are all reasons, in the order of a node's life.
var eventDocs = []eventDoc{
	{events.ReasonServerLaunched, false, kindNodeClaim,
		"The NodeClaim has its server: which flavor and zone, its price, and why: `Cheapest` of what fits and is available, `FailedOver` after a rejection, " +
			"`Found` after a create request whose answer was lost.", nothing},
	{events.ReasonOfferingUnavailable, true, kindNodeClaim,
		"BizFly Cloud has no capacity for the flavor in the zone. The offering is unavailable for `UNAVAILABLE_OFFERING_TTL`, doubled for each failure in a row, " +
			"up to eight times, and the next cheapest is tried.", "Nothing; allow more flavors and zones in the NodePool if it is frequent."},
	{events.ReasonLaunchRejected, true, kindNodeClaim,
		"BizFly Cloud rejected a create request for another reason than capacity. The offering is unavailable to the NodeClass for a while and the next one is " +
			"tried, or, where the NodeClass or the credentials are to blame, the NodeClaim ends.",
		"Do what the message asks for: mostly the NodeClass, or the rights of the credentials."},
	{events.ReasonLaunchFailed, true, kindNodeClaim,
		"BizFly Cloud accepted the create request and could not build the server, or the server disappeared before its node had registered. The server is " +
			"deleted, its offering is unavailable for a while, and the NodeClaim is replaced.",
		"Nothing, unless it repeats; then ask BizFly Cloud with the server's name."},
	{events.ReasonNodeNotRegistered, true, kindNodeClaim,
		"The server came up, but its node did not join the cluster within 15 minutes. It counts as a failed launch of the offering and of the NodeClass.",
		"Read the server's console; check bootstrap, network and firewalls of the NodeClass."},
	{events.ReasonLaunchNotSent, true, kindNodeClaim,
		"The create request waited for its turn (rate limit, no connection, or a busy API server) until core's launch timeout was near. No server was built; " +
			"the NodeClaim is replaced.",
		"Nothing during a burst; otherwise look at the health of the API, or raise `LAUNCH_TIMEOUT`."},
	{events.ReasonLaunchSlow, true, kindNodeClaim, "The server has been in BUILD for more than five minutes.",
		"Wait; core replaces the NodeClaim after 15 minutes."},
	{events.ReasonLaunchOutcomeUnknown, true, kindNodeClaim,
		"BizFly Cloud never reported what became of a create request. The NodeClaim is replaced and the offering is unavailable for a while; a server that " +
			"appears late is garbage collected.", "Look at the health of the API (dashboard \"API health\")."},
	{events.ReasonLaunchIntentUnreadable, true, kindNodeClaim,
		"The annotation with the launch intent was changed by another client, so the NodeClaim is replaced.",
		"Find out which client edits annotations of NodeClaims."},
	{events.ReasonNodeClassUnresolved, true, kindNodeClaim, "The NodeClass of the NodeClaim does not exist or is being deleted.",
		"Correct `nodeClassRef` of the NodePool, or create the NodeClass."},
	{events.ReasonCapacityTypeUnsupported, true, kindNodeClaim, "Only `spot` or `reserved` is allowed, which BizFly Cloud does not offer.",
		"Allow `on-demand`; the message names another way to pay."},
	{events.ReasonNoCompatibleFlavor, true, kindNodePool, "No flavor, available or not, satisfies the NodePool's requirements.",
		"Change the requirement that the message names to one of the values that it lists."},
	{events.ReasonLaunchesPaused, true, kindNodeClass,
		"Launches with this NodeClass pause (`UNAVAILABLE_OFFERING_TTL`). User data or a join token cannot be made, a quota other than vCPUs and memory is " +
			"exhausted, or a network has no address left. Or three NodeClaims have failed with three offerings for other reasons than capacity. Where nodes did not " +
			"register, the pause is one minute, doubled up to five; then one launch at a time is tried until one registers.",
		"The message has the reason: quotas, networks, image, firewalls, user data or permissions. A change of the NodeClass ends the pause."},
	{events.ReasonAccountLimit, true, kindNodeClaim, "The account has no balance, or its credentials are rejected; all launches pause for a while.",
		"Top up the account, or correct the credentials."},
	{events.ReasonQuotaTooSmall, true, kindNodeClaim,
		"The quota does not allow a server of this size: that size and bigger ones are unavailable for five minutes.", "Raise the quota of vCPUs or memory."},
	{events.ReasonSpendingLimit, true, kindNodeClaim,
		"`MAX_SERVERS` or `MAX_VND_PER_HOUR` is reached, or it is not known whether it is. The NodeClaim ends, and what cannot be launched is unavailable for a " +
			"minute.", "Delete what is not needed, or raise the limit; see the condition `WithinSpendingLimits` of the ProviderConfig."},
	{events.ReasonNodePoolUnlimited, true, kindNodePool,
		"The NodePool has no `spec.limits`, and the cluster has no limit either: nothing bounds what it launches. Published once a day.",
		"Set `spec.limits`, or `MAX_SERVERS` or `MAX_VND_PER_HOUR`."},

	{events.ReasonNodeDrifted, false, kindNodeClaim,
		"The server differs from what its NodeClass asks for, and in what: `NodeClassDrift`, `ImageDrift`, `UserDataDrift`, `FlavorDrift`, `ZoneDrift`, " +
			"`NetworkDrift`, `DiskDrift` or `BillingPlanDrift`. Core replaces it.", "Nothing; disruption budgets of the NodePool decide when."},
	{events.ReasonServerUpdated, false, kindNodeClaim,
		"Firewalls or the network plan of the running server were changed to match its NodeClass, without replacing it.", nothing},
	{events.ReasonServerUpdateFailed, true, kindNodeClaim, "A change of the running server did not succeed; it is tried again.",
		"Do what the message asks for, if it repeats."},
	{events.ReasonServerNotRunning, true, kindNodeClaim,
		"The server is stopped, suspended, in ERROR or missing, and its kubelet is silent. The condition `karpenter.bizflycloud.vn/ServerRunning` of the Node " +
			"is false; node repair replaces the node where `NodeRepair` is on.",
		"Delete NodeClaims instead of stopping servers. Where `NodeRepair` is off, start the server or delete the NodeClaim."},
	{events.ReasonServerRunning, false, kindNodeClaim, "A server that did not run runs again.", nothing},

	{events.ReasonGarbageCollected, false, kindNamespace + ", " + kindProviderConfig,
		"A server of this cluster had no NodeClaim and is deleted with its root disk.", "Nothing, unless it is frequent; then find out why launches fail."},
	{events.ReasonWouldGarbageCollect, true, kindNamespace + ", " + kindProviderConfig, "The same in a dry run: nothing is deleted.",
		"Set `GARBAGE_COLLECTION_DRY_RUN=false` when you agree."},
	{events.ReasonGarbageCollectionSuspended, true, kindNamespace + ", " + kindProviderConfig,
		"So many servers with a registered node have no NodeClaim that lost NodeClaims are more likely; nothing is deleted.",
		"Restore the NodeClaims, or delete the servers that the message names."},
	{events.ReasonServerLeft, true, kindNodeClaim,
		"The NodeClaim is deleted, but nothing proves its server to be this cluster's any more, so the server is not deleted.",
		"Delete the server with its disks manually, if it is this NodeClaim's."},
	{events.ReasonNodeSmallerThanPlanned, true, kindNodeClaim,
		"The node offers pods noticeably less than was planned for its instance type. Karpenter plans with it from the second node that reports " +
			"the same, though never with less than a third of the estimate.",
		"Nothing; set `spec.kubelet` of the NodeClass to plan with it at once."},
	{events.ReasonServerHeld, true, kindNodeClaim,
		"The NodeClaim has the id of a server that was launched for another NodeClaim, as after a restore from a backup. The server is kept, and deleted with " +
			"this NodeClaim.", "Nothing, if NodeClaims were restored; otherwise delete the NodeClaim."},
	{events.ReasonServerKept, true, kindNamespace + ", " + kindProviderConfig,
		"A server has this cluster's metadata, no NodeClaim, and a name that this cluster did not give, like a copy of a node that a user made. It is kept.",
		"Delete the server if it is not needed, or remove its metadata `bizfly-karpenter-cluster-uid`."},
	{events.ReasonServerDeletionFailed, true, kindNode,
		"The server still exists ten minutes after its deletion began, or BizFly Cloud rejects to delete one without a NodeClaim. It is tried again; NodeClaim and " +
			"Node stay until the server is gone.", "Read BizFly Cloud's answers in the log; ask BizFly Cloud with the server's id."},
	{events.ReasonDiskDeletionFailed, true, kindNode,
		"A disk of a deleted server is still paid for: it has a snapshot, and its deletion is tried again, or it is kept because a user may have detached or " +
			"restored it.", "Delete the snapshots of the disk or the disk, or rename it to keep it."},
	{events.ReasonAddressReleaseFailed, true, kindNode,
		"An address of a deleted server could not be released and is paid for. It is tried again.", "Release the address in BizFly's console, if it stays."},
	{events.ReasonLeaveFailed, true, kindNode,
		"The server is deleted, and BizFly Kubernetes Engine did not accept the request to remove its node. The request is not repeated.",
		"Remove the node in BizFly's console, if it stays."},

	{events.ReasonNodeClassStale, true, kindNodeClass,
		"A list of the cloud cannot be read. The condition stays true on what was resolved for this spec, for an hour; launches go on.",
		"Look at the health of the API if it lasts."},
	{events.ReasonNodeClassUnknown, true, kindNodeClass,
		"A list of the cloud could not be read for an hour. The condition is Unknown and launches with the NodeClass stop until it is read.",
		"Look at the health of the API, and at the rights of the credentials."},
	{"ZoneNotFound", true, kindNodeClass, "`spec.zones` names a zone that the region does not have.", "Correct it as the message explains."},
	{"NoZones", true, kindNodeClass, "No zone is left for the NodeClass.", "Widen `spec.zones`."},
	{"ImageNotFound", true, kindNodeClass, "No image matches `spec.imageSelectorTerms`.", "Correct the terms; the message lists what is available."},
	{"ImageUnsuitable", true, kindNodeClass, "The image does not suit `spec.bootstrapMode` or `spec.userData`.",
		"Choose another image or change these fields as the message explains."},
	{"NetworkNotFound", true, kindNodeClass, "A VPC network of the NodeClass does not exist.", "Correct `spec.networkSelectorTerms`."},
	{"FirewallNotFound", true, kindNodeClass, "A firewall of the NodeClass does not exist.", "Correct `spec.firewallSelectorTerms`."},
	{"SSHKeyNotFound", true, kindNodeClass, "The SSH key of the NodeClass does not exist.", "Correct `spec.sshKeyName`, or upload the key."},
	{"RootDiskTooSmall", true, kindNodeClass, "The image or snapshot does not fit on the root disk.", "Raise `spec.rootDisk.size` to the size in the message."},
	{"DiskNotSold", true, kindNodeClass, "None of the zones of the NodeClass has the volume type of one of its disks.",
		"Choose a volume type that the message lists, or `medium: SSD` or `HDD`."},
	{"DisksNotSoldTogether", true, kindNodeClass, "Each disk of the NodeClass is available, but nowhere all of them for one server.",
		"Choose volume types of one category, or `medium: SSD` or `HDD`."},
	{"FlavorNotFound", true, kindNodeClass, "No flavor matches `spec.flavorSelectorTerms`.", "Correct the terms; the message lists what is available."},
	{"NoFlavors", true, kindNodeClass, "No flavor can be used with the NodeClass.", "Read which field of the NodeClass the message blames."},
	{"NothingLaunchable", true, kindNodeClass, "Static NodePools lack nodes, and nothing that they allow is available; they wait.",
		"Allow more flavors or zones, or wait."},
	{"BootstrapNotConfigured", true, kindNodeClass, "A server could not join: what it needs for it is not configured.",
		"Configure BKE's cluster id and token, or give user data."},
	{"UserDataInvalid", true, kindNodeClass, "The user data of `spec.userData` cannot be used.", "Correct the template as the message explains."},
	{"UserDataSecretUnusable", true, kindNodeClass, "The Secret of `spec.userDataFrom` does not exist, may not be read, or lacks the key.",
		"Create it in the controller's namespace, and name it in the chart's value `userDataSecrets`."},
	{"JoinTokensDisabled", true, kindNodeClass, "`spec.joinToken` needs a Role that the controller was not given.", "Set the chart's value `joinTokens.enabled`."},
	{events.ReasonInsecureJoinEndpoint, true, kindNodeClass, "Servers join over plain http, so that the cluster's token passes in the clear. Launches go on.",
		"Use an https endpoint where there is one, or keep servers on a private network."},
	{"NoEgress", true, kindNodeClass, "Servers get no public address, and no network of theirs has an internet gateway. Launches go on.",
		"Set `spec.publicIPv4: true` or attach a gateway, unless images are mirrored and the cluster is on the same network."},
	{"SavingPlanOnDynamicNodePool", true, kindNodeClass,
		"Dynamically launched nodes are paid for by a plan that is prepaid at each create, and perhaps not refunded at a delete.",
		"Use `billingPlan: OnDemand`, or NodePools with `spec.replicas`."},
	{events.ReasonWaitingOnNodeClaimTermination, false, kindNodeClass, "The NodeClass is being deleted and stays until no NodeClaim uses it.",
		"Nothing, or delete the NodePools that use it."},

	{events.ReasonConfigApplied, false, kindProviderConfig, "A configuration became active, for which region and project.", nothing},
	{"SecretForbidden", true, kindProviderConfig, "The Secret with the credentials may not be read.", "Grant `get` on that Secret by name."},
	{"CredentialsInvalid", true, kindProviderConfig, "BizFly Cloud rejects the credentials, or they are incomplete. The active configuration stays.",
		"Correct the Secret; it is read again by itself."},
	{"EndpointUnreachable", true, kindProviderConfig, "The API does not answer at the endpoint.", "Check `spec.endpoint` and the egress of the controller."},
	{"ScopeChanged", true, kindProviderConfig, "The configuration is for another host, region or project than the servers that exist. It is rejected.",
		"Restore the former one, or drain first: delete all NodeClaims."},
	{"ControlPlaneChanged", true, kindProviderConfig,
		"None of the API servers that are recorded runs any more: this cluster may be a clone. Garbage collection only reports.",
		"If the original cluster does not run any more, [confirm it](../concepts/ownership.md#clones-of-a-cluster)."},
	{"ConfigMapForbidden", true, kindProviderConfig, "The tuning ConfigMap may not be read.", "Grant `get` on it by name."},
	{"ConfigMapNotFound", true, kindProviderConfig, "The tuning ConfigMap does not exist.", "Create it, or remove the reference."},
	{"ConfigMapUnreadable", true, kindProviderConfig, "The tuning ConfigMap could not be read.", "Wait; it is tried again."},
	{events.ReasonTuningIgnored, true, kindProviderConfig, "A key of the tuning ConfigMap is invalid, and why. It keeps its last valid value.",
		"Correct the key; [tuning.md](tuning.md) lists them."},
	{events.ReasonTuningApplied, false, kindProviderConfig, "Changed tuning became active.", nothing},
	{events.ReasonForeignProvider, true, kindProviderConfig,
		"At start, the controller found custom resource definitions or the Lease of an older Karpenter provider for BizFly Cloud. The two do not touch each " +
			"other's servers, but both launch servers for the same pods.", "Remove the older provider once its nodes are drained, or run it in another cluster."},
}

// coreEventDocs are the events of Karpenter itself about the rest of a node's life.
var coreEventDocs = []eventDoc{
	{"FailedScheduling", true, "Pod", "No NodePool can launch a node for the pod, and why not.", "Read the message: requirements, taints, limits."},
	{"Nominated", false, "Pod", "The pod is planned for a node or a NodeClaim.", nothing},
	{"NoCompatibleInstanceTypes", true, kindNodePool, "The NodePool's requirements leave no instance type.", "See `NoCompatibleFlavor`."},
	{"InsufficientCapacityError", true, kindNodeClaim, "The NodeClaim ends without a server and its pods are planned again.", "See its other events."},
	{"NodeClassNotReady", true, kindNodeClaim, "The NodeClaim ends because its NodeClass is not ready.", "See the events of the NodeClass."},
	{"Launched, Registered, Initialized, Drifted", false, kindNodeClaim, "A condition of the NodeClaim changed; the message has its reason.", nothing},
	{"DisruptionLaunching, DisruptionWaitingReadiness, DisruptionTerminating", false, kindNodeClaim + ", " + kindNode,
		"A node is being replaced or removed, and why: underutilized, empty or drifted.", nothing},
	{"DisruptionBlocked, Unconsolidatable", false, kindNodeClaim + ", " + kindNode + ", " + kindNodePool, "A node stays although it could be removed, and why.",
		"Read the message: PodDisruptionBudgets, `do-not-disrupt`, budgets."},
	{"NodeRepairBlocked", true, kindNodeClaim + ", " + kindNodePool, "Too many nodes are unhealthy to replace any.", "Look for a common cause."},
	{"Disrupted, Evicted, FailedDraining, AwaitingVolumeDetachment, TerminationGracePeriodExpiring", false, "Pod, " + kindNode, "The steps of a drain.",
		"Of `FailedDraining`: look at the PodDisruptionBudgets."},
	{"FailedConsistencyCheck", true, kindNodeClaim + ", " + kindNode, "A node differs from its NodeClaim.", "Compare its capacity with the flavor's."},
}
