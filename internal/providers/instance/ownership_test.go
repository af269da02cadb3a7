// Copyright The Karpenter Provider BizFly Cloud Authors.
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"github.com/bizflycloud/gobizfly"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
)

var _ = Describe("A disk of a server that is to be deleted", func() {
	const name = "default-x7k2p-a1b2c3d4e5f6g7h8j9"
	here := []gobizfly.VolumeAttachment{{ServerID: "here"}}
	rootDisk := Volume{ID: "a", Name: name + "_rootdisk", Root: true, attachedType: attachedTypeRoot}
	dataDisk := Volume{ID: "a", Name: "anything", attachedType: "datadisk"}

	DescribeTable("should be deleted or kept for one reason", func(attached *Volume, listed *gobizfly.Volume, recorded, unlisted bool, dataDisks int,
		wanted ownership) {
		server := &Instance{ID: "here", launchName: name, DataDisks: dataDisks}
		var volumes []*gobizfly.Volume
		var records []string
		if attached != nil {
			server.Volumes = append(server.Volumes, *attached)
		}
		if listed != nil {
			listed.ID = "a"
			volumes = append(volumes, listed)
		}
		if recorded {
			records = append(records, "a")
		}
		disks := newServerDisks(server, volumes, unlisted, records)
		Expect(disks.disks).To(HaveLen(1))
		Expect(disks.ownershipOf(disks.disks[0])).To(Equal(wanted))
	},
		Entry("its root disk", &rootDisk, &gobizfly.Volume{Name: rootDisk.Name, Attachments: here}, false, false, 0, ownRoot),
		Entry("its root disk, which a lagging list lacks", &rootDisk, nil, false, false, 0, ownRoot),
		Entry("its root disk, without a list", &rootDisk, nil, false, true, 0, ownRoot),
		Entry("a recorded disk", &dataDisk, &gobizfly.Volume{Name: "x", Attachments: here}, true, false, 0, ownRecorded),
		Entry("a recorded disk that a lagging list lacks", &dataDisk, nil, true, false, 0, unproven),
		Entry("a recorded disk, without a list", &dataDisk, nil, true, true, 0, ownRecorded),
		Entry("a recorded disk of the CSI driver", &dataDisk, &gobizfly.Volume{Name: "pvc-1", Attachments: here}, true, false, 0, othersCSI),
		Entry("a disk that the CSI driver describes", &dataDisk, &gobizfly.Volume{Name: "x", Description: "made by csi-bizflycloud", Attachments: here}, true,
			false, 0, othersCSI),
		Entry("a recorded disk of the CSI driver, without a list", &Volume{ID: "a", Name: "pvc-1", attachedType: "datadisk"}, nil, true, true, 0, othersCSI),
		Entry("a recorded disk that another server has by now", &dataDisk,
			&gobizfly.Volume{Name: "x", Attachments: []gobizfly.VolumeAttachment{{ServerID: "elsewhere"}}}, true, false, 0, othersAttached),
		Entry("a data disk that was requested", &dataDisk, &gobizfly.Volume{Name: name + "_datadisk1", Attachments: here}, false, false, 1, ownNamed),
		Entry("a disk with such a name that was restored from a snapshot", &dataDisk,
			&gobizfly.Volume{Name: name + "_datadisk1", SnapshotID: "s", Attachments: here}, false, false, 1, others),
		Entry("a disk with such a name, where none was requested", &dataDisk, &gobizfly.Volume{Name: name + "_datadisk1", Attachments: here}, false, false,
			0, others),
		Entry("a disk that a user has attached", &dataDisk, &gobizfly.Volume{Name: "x", Attachments: here}, false, false, 1, others),
		Entry("the same without a list", &dataDisk, nil, false, true, 1, others),
		Entry("a disk that only the list knows", nil, &gobizfly.Volume{Name: "x", Attachments: here}, true, false, 0, ownRecorded),
	)
	DescribeTable("should be one root disk of several by name, and by the record only where no name decides",
		func(names []string, recorded []string, wanted ...ownership) {
			server := &Instance{ID: "here", launchName: name, Volumes: lo.Map(names, func(name string, i int) Volume {
				return Volume{ID: string(rune('a' + i)), Name: name, Root: true, attachedType: attachedTypeRoot}
			})}
			disks := newServerDisks(server, nil, true, recorded)
			Expect(lo.Map(disks.disks, func(d disk, _ int) ownership { return disks.ownershipOf(d) })).To(Equal(wanted))
		},
		Entry("one has the server's name", []string{name + "_rootdisk", "rescued"}, []string{"b"}, ownRoot, othersRoot),
		Entry("no name decides, and one is recorded", []string{"x", "rescued"}, []string{"a"}, ownRoot, othersRoot),
		Entry("nothing decides", []string{"x", "rescued"}, nil, othersRoot, othersRoot),
	)
})

var _ = Describe("Waiting for a server", func() {
	good, bad := &Instance{ID: "good", Status: StatusActive}, &Instance{ID: "bad", Status: StatusError}
	failure := unexplained(Intent{}, "no room")
	seen := facts{listed: true, fresh: true}
	with := func(change func(*facts)) facts {
		f := seen
		change(&f)
		return f
	}
	DescribeTable("should known from what is known, or read one more thing", func(f facts, wanted decision) {
		Expect(decide(f)).To(Equal(wanted))
	},
		Entry("nothing was listed", facts{}, decision{next: wait}),
		Entry("a good server is listed", with(func(f *facts) { f.good, f.failed = good, bad }), decision{next: known, server: good}),
		Entry("a good server is in an old list", facts{listed: true, good: good}, decision{next: known, server: good}),
		Entry("the list is older than the request", facts{listed: true, failed: bad}, decision{next: wait}),
		Entry("the task was not read", seen, decision{next: readTask}),
		Entry("others read their tasks first", with(func(f *facts) { f.task, f.failed, f.resumed = taskDeferred, bad, true }), decision{next: wait}),
		Entry("the task runs", with(func(f *facts) { f.task = taskRunning }), decision{next: wait}),
		Entry("the task cannot be read", with(func(f *facts) { f.task, f.resumed, f.overdue = taskUnreadable, true, true }), decision{next: wait}),

		Entry("the task failed, and names perhaps a server", with(func(f *facts) { f.task, f.taskFailure = taskFailed, failure }),
			decision{next: readServer}),
		Entry("the task failed and left nothing", with(func(f *facts) { f.task, f.taskFailure, f.server = taskFailed, failure, serverMissing }),
			decision{next: known, failure: failure}),
		Entry("the task failed and left a server that the list lacks", with(func(f *facts) {
			f.task, f.taskFailure, f.server, f.named = taskFailed, failure, serverFound, good
		}), decision{next: known, server: good, failure: failure}),
		Entry("the task failed and left a listed server", with(func(f *facts) { f.task, f.taskFailure, f.failed = taskFailed, failure, bad }),
			decision{next: known, server: bad, failure: failure}),

		Entry("the server failed while its task runs", with(func(f *facts) { f.task, f.failed = taskRunning, bad }), decision{next: wait}),
		Entry("the same where an earlier call has waited", with(func(f *facts) { f.task, f.failed, f.resumed = taskRunning, bad, true }),
			decision{next: known, server: bad, status: StatusError}),
		Entry("the server failed and there is no task", with(func(f *facts) { f.task, f.failed = taskMissing, bad }),
			decision{next: known, server: bad, status: StatusError}),
		Entry("the server failed although its task succeeded", with(func(f *facts) { f.task, f.failed = taskSucceeded, bad }),
			decision{next: known, server: bad, status: StatusError}),

		Entry("the task succeeded, and no server is listed", with(func(f *facts) { f.task = taskSucceeded }), decision{next: readServer}),
		Entry("the server that it names is good", with(func(f *facts) { f.task, f.server, f.named = taskSucceeded, serverFound, good }),
			decision{next: known, server: good}),
		Entry("the server that it names has failed", with(func(f *facts) { f.task, f.server, f.named = taskSucceeded, serverFound, bad }),
			decision{next: known, server: bad, status: "ERROR after its task had succeeded"}),
		Entry("the server that it names cannot be read", with(func(f *facts) {
			f.task, f.server, f.resumed, f.overdue = taskSucceeded, serverUnreadable, true, true
		}), decision{next: wait}),
		Entry("there is neither a task nor a server", with(func(f *facts) { f.task, f.server, f.overdue = taskMissing, serverMissing, true }),
			decision{next: wait}),
		Entry("the same, resumed within the visibility window", with(func(f *facts) { f.task, f.server, f.resumed = taskMissing, serverMissing, true }),
			decision{next: wait}),
		Entry("the same, resumed after it", with(func(f *facts) { f.task, f.server, f.resumed, f.overdue = taskMissing, serverMissing, true, true }),
			decision{next: known}),
	)
})
