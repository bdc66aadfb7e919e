//! The programs: what each is hooked to, what it needs, and which takes another's place.

use podresources_proxy_ebpf_common::Kind;

/// Where a program is hooked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// A tracepoint with typed arguments (`tp_btf`), of which there must be this many.
    Tracepoint { name: &'static str, arguments: usize },
    /// The end of a kernel function (`fexit`) with this many arguments.
    Exit { function: &'static str, arguments: usize },
    /// The beginning of a kernel function (kprobe).
    Entry { function: &'static str },
    /// The return from a kernel function (kretprobe).
    Return { function: &'static str },
    /// A tracepoint of the group `cgroup`, by its record.
    Classic { name: &'static str },
}

/// What must be known of the kernel's structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// cgroups
    Cgroup,
    /// cgroups, and open files in cgroupfs
    File,
    /// `vfs_rename` with its arguments one by one
    RenameArguments,
    /// `vfs_rename` with a struct
    RenameData,
    /// the format of a tracepoint's record
    Record,
}

/// One way to do a duty: one program, or two that work together.
#[derive(Debug)]
pub(super) struct Way {
    /// What reports call it.
    pub(super) name: &'static str,
    /// The programs by their names in the object, in the order in which they are attached.
    pub(super) programs: &'static [(&'static str, Hook)],
    pub(super) needs: Needs,
}

/// Something to be told of.
#[derive(Debug)]
pub(super) struct Duty {
    /// What its events are.
    pub(super) kind: Kind,
    /// The ways to it, best first. The first that works is enough.
    pub(super) ways: &'static [Way],
}

const RESMASK: &str = "cpuset_write_resmask";
const FILE_WRITE: &str = "cgroup_file_write";
const RENAME: &str = "vfs_rename";

/// All duties.
pub(super) const DUTIES: [Duty; 8] = [
    Duty {
        kind: Kind::Mkdir,
        ways: &[
            tracepoint("tp_btf/cgroup_mkdir", &[("cgroup_mkdir", Hook::Tracepoint { name: "cgroup_mkdir", arguments: 2 })]),
            classic("tracepoint/cgroup_mkdir", &[("classic_mkdir", Hook::Classic { name: "cgroup_mkdir" })]),
        ],
    },
    Duty {
        kind: Kind::Rmdir,
        ways: &[
            tracepoint("tp_btf/cgroup_rmdir", &[("cgroup_rmdir", Hook::Tracepoint { name: "cgroup_rmdir", arguments: 2 })]),
            classic("tracepoint/cgroup_rmdir", &[("classic_rmdir", Hook::Classic { name: "cgroup_rmdir" })]),
        ],
    },
    Duty {
        kind: Kind::Release,
        ways: &[
            tracepoint("tp_btf/cgroup_release", &[("cgroup_release", Hook::Tracepoint { name: "cgroup_release", arguments: 2 })]),
            classic("tracepoint/cgroup_release", &[("classic_release", Hook::Classic { name: "cgroup_release" })]),
        ],
    },
    Duty {
        kind: Kind::Attach,
        ways: &[tracepoint(
            "tp_btf/cgroup_attach_task",
            &[("cgroup_attach_task", Hook::Tracepoint { name: "cgroup_attach_task", arguments: 4 })],
        )],
    },
    Duty {
        kind: Kind::Populated,
        ways: &[tracepoint(
            "tp_btf/cgroup_notify_populated",
            &[("cgroup_notify_populated", Hook::Tracepoint { name: "cgroup_notify_populated", arguments: 3 })],
        )],
    },
    Duty {
        kind: Kind::Cpuset,
        ways: &[
            Way {
                name: "fexit/cpuset_write_resmask",
                programs: &[(RESMASK, Hook::Exit { function: RESMASK, arguments: 4 })],
                needs: Needs::File,
            },
            Way {
                name: "kprobe/cpuset_write_resmask",
                programs: &[
                    ("kretprobe_resmask", Hook::Return { function: RESMASK }),
                    ("kprobe_resmask", Hook::Entry { function: RESMASK }),
                ],
                needs: Needs::File,
            },
        ],
    },
    Duty {
        kind: Kind::Cpuset,
        ways: &[
            Way {
                name: "fexit/cgroup_file_write",
                programs: &[(FILE_WRITE, Hook::Exit { function: FILE_WRITE, arguments: 4 })],
                needs: Needs::File,
            },
            Way {
                name: "kprobe/cgroup_file_write",
                programs: &[
                    ("kretprobe_file_write", Hook::Return { function: FILE_WRITE }),
                    ("kprobe_file_write", Hook::Entry { function: FILE_WRITE }),
                ],
                needs: Needs::File,
            },
        ],
    },
    Duty {
        kind: Kind::Rename,
        ways: &[
            Way {
                name: "fexit/vfs_rename",
                programs: &[("rename_data", Hook::Exit { function: RENAME, arguments: 1 })],
                needs: Needs::RenameData,
            },
            Way {
                name: "fexit/vfs_rename (before 5.12)",
                programs: &[("rename_args", Hook::Exit { function: RENAME, arguments: 6 })],
                needs: Needs::RenameArguments,
            },
            Way {
                name: "kprobe/vfs_rename",
                programs: &[
                    ("kretprobe_rename", Hook::Return { function: RENAME }),
                    ("kprobe_rename_data", Hook::Entry { function: RENAME }),
                ],
                needs: Needs::RenameData,
            },
            Way {
                name: "kprobe/vfs_rename (before 5.12)",
                programs: &[
                    ("kretprobe_rename", Hook::Return { function: RENAME }),
                    ("kprobe_rename_args", Hook::Entry { function: RENAME }),
                ],
                needs: Needs::RenameArguments,
            },
        ],
    },
];

const fn tracepoint(name: &'static str, programs: &'static [(&'static str, Hook)]) -> Way {
    Way { name, programs, needs: Needs::Cgroup }
}

const fn classic(name: &'static str, programs: &'static [(&'static str, Hook)]) -> Way {
    Way { name, programs, needs: Needs::Record }
}
