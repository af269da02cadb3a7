// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ttl is the page of the times that are fixed: how long things are remembered and how often they are checked,
// each with its reason. Times that a user may change are settings; their table is in internal/options.
package ttl

import "time"

const (
	// Startup bounds the one conversation with the cloud that a start needs.
	Startup = time.Minute
	// PreflightPatience is how long `helm test` waits for what was installed a moment ago: a leader is elected within
	// seconds, and resolves everything within a few more.
	PreflightPatience = 30 * time.Second
	// PreflightInterval is how often `helm test` looks again meanwhile.
	PreflightInterval = 5 * time.Second
	// Cleanup is how often caches drop what has expired, which costs a walk through all entries.
	Cleanup = 10 * time.Minute
	// Conflict is after what a write that met another one is repeated: by then the other one has reached the cache.
	Conflict = time.Second

	// Launch is how long what was learned of a NodeClaim's launch or removal is remembered; after Registration nothing
	// asks for it any more.
	Launch = time.Hour
	// FailOver bounds how long one call of Create goes on after rejections: Karpenter schedules nothing while a
	// NodeClaim has no server, so one that finds no capacity quickly is better planned anew.
	FailOver = 10 * time.Second
	// LaunchMargin is the part of Karpenter's launch timeout that a server needs to show its id: with less time left,
	// it would be built for a NodeClaim that is about to end. It is never more than a quarter of the timeout.
	LaunchMargin = 30 * time.Second
	// CoreRetry is the longest that Karpenter waits until it calls Create again after an error.
	CoreRetry = time.Minute
	// ServerPoll is the time between two reads of the servers that are being launched.
	ServerPoll = 2 * time.Second
	// ServerIDWait is how long one launch waits for the id of its server. Karpenter schedules nothing meanwhile.
	ServerIDWait = 30 * time.Second
	// Visibility is how long the server of a create request without an answer is looked for before the NodeClaim ends.
	Visibility = 2 * time.Minute
	// AccountPause is how long all launches pause after a rejection for balance or credentials.
	AccountPause = time.Minute
	// LaunchPoll is how often a server is checked until its node has registered; all NodeClaims share one list of
	// servers.
	LaunchPoll = 10 * time.Second
	// SlowBuild is after what a server that is still being built is reported; most take less than two minutes.
	SlowBuild = 5 * time.Minute
	// Registration is after what Karpenter deletes a NodeClaim whose node has not registered, without an event.
	Registration = 15 * time.Minute
	// Surplus is how long a node may be without any pod until it counts as one that nobody needed.
	Surplus = 10 * time.Minute

	// RejectedSize is how long sizes stay unavailable that the quota of vCPUs or memory has rejected: longer than for
	// lack of capacity, since servers have to be deleted or the quota raised.
	RejectedSize = 5 * time.Minute
	// OfferingFailures is how long a failed launch counts against its offering: several times the longest mark, so that
	// marks of what keeps failing do not get shorter again.
	OfferingFailures = 2 * time.Hour
	// LaunchTimes is how long the average time of launches is used without a new launch.
	LaunchTimes = 24 * time.Hour
	// NodeClassFailures is how long a failed launch counts against its NodeClass.
	NodeClassFailures = 10 * time.Minute
	// NotRegistered is the same for a node that did not register, which itself takes longer than NodeClassFailures.
	NotRegistered = time.Hour
	// FirstPause is how long launches with a NodeClass pause: the marks of the offerings that failed last longer, so
	// that others are tried next. Where nodes do not register, each trial that fails doubles it, up to MaxLaunchPause.
	FirstPause = time.Minute
	// MaxLaunchPause bounds a pause, so that a NodeClass that works again is used again soon.
	MaxLaunchPause = 5 * time.Minute
	// TrialRegistration is how long the trial after a pause may take to register: Karpenter's 15 minutes, and a little
	// more.
	TrialRegistration = 16 * time.Minute
	// NodeClassConditions is how often a NodeClass is compared with its launches and with the package of the cluster.
	NodeClassConditions = 10 * time.Second
	// NodeClassInUse is how soon a deleted NodeClaim is noticed whose event was missed; the others free the NodeClass
	// at once.
	NodeClassInUse = time.Minute

	// ListedServers is how old the last list of servers may be that drift compares with. Karpenter lists every two
	// minutes.
	ListedServers = 10 * time.Minute
	// InterfacesRead bounds the list of network interfaces, which nothing but drift waits for.
	InterfacesRead = 20 * time.Second
	// InPlace is how often a server is compared with its NodeClass at least, and how soon a change that failed is tried
	// again; a changed NodeClass is applied at once.
	InPlace = 2 * time.Minute
	// RunningServer is how often a server that runs is checked; all NodeClaims share one list of servers.
	RunningServer = time.Minute
	// Account is how often the account is asked whether it is unpaid: several times before core repairs a silent node.
	Account = time.Minute
	// AccountAtRest is the same while no node is silent and no server is stopped.
	AccountAtRest = 5 * time.Minute

	// ProviderConfigInterval is how soon a changed ProviderConfig, Secret or tuning ConfigMap takes effect. They are
	// read and not watched, because a watch would need the right to list every Secret of the namespace.
	ProviderConfigInterval = 5 * time.Second
	// ProviderConfigClosedInterval is the same while no scope is written down, which keeps the client closed.
	ProviderConfigClosedInterval = 500 * time.Millisecond
	// APIServerJoined is how long an API server runs beside one that is recorded before it is recorded itself. In a
	// clone of the cluster the addresses of the original stay for 15 seconds, the lease of each, and must be gone by
	// then.
	APIServerJoined = time.Minute
	// ConfigMapRead bounds one read of the tuning ConfigMap.
	ConfigMapRead = 10 * time.Second

	// CatalogRefresh bounds one refresh of the catalog: the client's own deadline per read plus its retries fit in it.
	CatalogRefresh = time.Minute
	// CatalogBackoff is how soon a failed refresh of the catalog is tried again, and a pass of garbage collection that
	// could not read servers or NodeClaims. Until the first refresh nothing can be launched.
	CatalogBackoff = 30 * time.Second

	// List bounds one list of servers, volumes, interfaces or firewalls, which outlives the reader that began it
	// because others may wait for it too. It exceeds the client's own deadline for a read.
	List = time.Minute
	// ServerList is how old the shared lists of servers, volumes and interfaces may be. Whether a server is gone is
	// always read by its id, too.
	ServerList = 5 * time.Second
	// PeriodicServers is how old the lists of servers and interfaces may be for what no event urges: the steps of a
	// server whose node is Ready, and drift of networks. It is safe because none of them acts by the list: a Ready node
	// vetoes repair, a server that the list lacks is read by its id, and each change reads the server first. Others
	// read a newer list in that time, so that at rest the servers are listed about once a minute.
	PeriodicServers = 2 * time.Minute
	// LaunchCleanup bounds what is still done when the caller's own time is up: recording the answer to a create
	// request and beginning to delete the server of a failed one.
	LaunchCleanup = 15 * time.Second
	// DeletionRetry is how soon a request to delete a server is sent again that the cloud has answered and that shows
	// nothing yet: tasks get lost, and a server can be locked for a moment. It is several times as long as the cloud
	// takes to delete most.
	DeletionRetry = 30 * time.Second
	// UnlistedVolumes is how long the deletion of a server waits for a list of volumes that cannot be read. Then what
	// the server says of its disks counts, since the server is paid for meanwhile.
	UnlistedVolumes = time.Minute
	// GoneServer is how long it is remembered that a server is gone: core asks again from two controllers, which costs
	// no call.
	GoneServer = 10 * time.Minute
	// LeaveBKE is how long a node may wait for its turn to leave BKE: one cluster's nodes leave within minutes, even
	// after a burst.
	LeaveBKE = 10 * time.Minute
	// SlowDeletion is after what a server is reported that still exists although its deletion began.
	SlowDeletion = 10 * time.Minute
	// Lookup is how long lists of images, VPC networks, firewalls and SSH keys are cached: short, because a new one is
	// expected to be found, and long enough for a hundred NodeClasses. An object that a list lacks is looked for in a
	// new list in any case.
	Lookup = time.Minute
	// PaidHourEnd is the end of a paid hour in which no disruption begins any more: draining and deleting take about as
	// long.
	PaidHourEnd = time.Minute
	// Nominated is how often core is reminded of a node that kube-scheduler has chosen for a pod: a nomination lasts
	// ten seconds or longer.
	Nominated = 5 * time.Second
	// Reboot is how long an accepted reboot is remembered; it exceeds the five minutes in which core repeats it.
	Reboot = time.Hour

	// Admission is how long a request waits at most for its turn, also when its caller has more time.
	Admission = time.Minute
	// DefaultPause is how long the requests of a class pause after a 429 that gives no time, as in BizFly's own
	// clients.
	DefaultPause = time.Second
	// MaxPause is the longest pause that a 429 may ask for.
	MaxPause = 5 * time.Minute
	// PauseTrial is after what time of a longer pause one request tries whether the cause has passed: every launch of
	// the cluster may wait for it.
	PauseTrial = time.Minute
	// NextPauseTrial is when another one tries while the first has no answer.
	NextPauseTrial = 5 * time.Second
	// FirstRetry is how soon a read is repeated; it doubles with each repetition and fits in a read's deadline several
	// times.
	FirstRetry = 200 * time.Millisecond
	// MaxRetry is the longest that FirstRetry becomes.
	MaxRetry = 5 * time.Second
	// DefaultToken is the life of a token as documented.
	DefaultToken = 4 * time.Hour
	// MinToken is the shortest life that a reply may claim, so that two clocks that disagree do not mean a login for
	// every request.
	MinToken = time.Minute
	// MaxToken is the longest life that a reply may claim.
	MaxToken = 24 * time.Hour
	// FirstLoginBackoff is how soon a failed login is tried again; it doubles with each failure.
	FirstLoginBackoff = time.Second
	// MaxLoginBackoff is the longest that FirstLoginBackoff becomes.
	MaxLoginBackoff = 5 * time.Minute
	// RejectedToken is how long no 401 of a service causes a login after it rejected a fresh token at once: another one
	// would not help.
	RejectedToken = 30 * time.Second
	// DisksInterval is how often a server is read until its disks are recorded, which must be before its node
	// registers.
	DisksInterval = 5 * time.Second
)
