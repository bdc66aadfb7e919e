//! Which fields the programs read, and where the running kernel has them.

use std::collections::HashMap;

use podresources_proxy_ebpf_common::Offsets;

use super::btf::{Btf, BtfError, Shape};
use super::programs::{DUTIES, Hook};

/// What is known of a kernel's structs. Each group stands alone: what one lacks costs only the programs that need it.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Zero where a group is missing.
    pub(super) offsets: Offsets,
    /// Whether cgroups can be told apart.
    pub(super) cgroup: Result<(), BtfError>,
    /// Whether the cgroup of an open file can be found.
    pub(super) file: Result<(), BtfError>,
    /// How `vfs_rename` takes its arguments.
    pub(super) rename: Result<RenameForm, BtfError>,
    /// How many arguments the hooks have, by the name of function or tracepoint.
    pub(super) arguments: HashMap<&'static str, Result<usize, BtfError>>,
}

/// How `vfs_rename` takes its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenameForm {
    /// One by one, before 5.12.
    Arguments,
    /// In a `struct renamedata`.
    Data,
}

// === impl Kernel ===

impl Kernel {
    /// Looks everything up.
    pub(super) fn of(btf: &Btf<'_>) -> Self {
        let mut offsets = Offsets::default();
        let cgroup = of_cgroup(btf, &mut offsets);
        let file = of_file(btf, &mut offsets);
        let rename = of_rename(btf, &mut offsets);
        let hooks = DUTIES.iter().flat_map(|duty| duty.ways).flat_map(|way| way.programs);
        let arguments = hooks.filter_map(|(_, hook)| match hook {
            Hook::Tracepoint { name, .. } => Some((*name, btf.tracepoint_arguments(name))),
            Hook::Exit { function, .. } => Some((*function, btf.arguments(function))),
            _ => None,
        });
        Self { offsets, cgroup, file, rename, arguments: arguments.collect() }
    }

    /// A kernel that says nothing.
    pub(super) fn unknown(error: &BtfError) -> Self {
        Self {
            offsets: Offsets::default(),
            cgroup: Err(error.clone()),
            file: Err(error.clone()),
            rename: Err(error.clone()),
            arguments: HashMap::new(),
        }
    }
}

fn of_cgroup(btf: &Btf<'_>, offsets: &mut Offsets) -> Result<(), BtfError> {
    let found = Offsets {
        cgroup_kn: btf.field("cgroup", "kn", Shape::PointerTo("kernfs_node"))?,
        cgroup_level: btf.field("cgroup", "level", Shape::Integer(4))?,
        cgroup_root: btf.field("cgroup", "root", Shape::PointerTo("cgroup_root"))?,
        root_hierarchy: btf.field("cgroup_root", "hierarchy_id", Shape::Integer(4))?,
        kn_id: btf.field("kernfs_node", "id", Shape::Integer(8))?,
        kn_name: btf.field("kernfs_node", "name", Shape::Pointer)?,
        task_pid: btf.field("task_struct", "pid", Shape::Integer(4))?,
        ..*offsets
    };
    *offsets = found;
    // Since 6.1 (kernel commit 7f203bc89eb6) pointers; ids before that.
    (offsets.cgroup_ancestors, offsets.ancestors_are_pointers) = match btf.field("cgroup", "ancestors", Shape::PointersTo("cgroup"))
    {
        Ok(offset) => (offset, 1),
        Err(BtfError::Missing(_)) => (btf.field("cgroup", "ancestor_ids", Shape::Integers(8))?, 0),
        Err(error) => return Err(error),
    };
    Ok(())
}

fn of_file(btf: &Btf<'_>, offsets: &mut Offsets) -> Result<(), BtfError> {
    let kernfs = Shape::PointerTo("kernfs_node");
    let found = Offsets {
        file_kn: btf.field("kernfs_open_file", "kn", kernfs)?,
        // Renamed in 6.15, when it became an RCU pointer.
        kn_parent: either(btf.field("kernfs_node", "__parent", kernfs), || btf.field("kernfs_node", "parent", kernfs))?,
        kn_priv: btf.field("kernfs_node", "priv", Shape::Pointer)?,
        ..*offsets
    };
    *offsets = found;
    Ok(())
}

fn of_rename(btf: &Btf<'_>, offsets: &mut Offsets) -> Result<RenameForm, BtfError> {
    let dentry = Shape::PointerTo("dentry");
    let name = btf.field("dentry", "d_name", Shape::Inside("qstr"))? + btf.field("qstr", "name", Shape::Pointer)?;
    let found = Offsets {
        dentry_inode: btf.field("dentry", "d_inode", Shape::PointerTo("inode"))?,
        dentry_name: name,
        inode_number: btf.field("inode", "i_ino", Shape::Integer(8))?,
        inode_superblock: btf.field("inode", "i_sb", Shape::PointerTo("super_block"))?,
        superblock_device: btf.field("super_block", "s_dev", Shape::Integer(4))?,
        ..*offsets
    };
    *offsets = found;
    match btf.arguments("vfs_rename")? {
        6 => Ok(RenameForm::Arguments),
        1 => {
            offsets.rename_new_dentry = btf.field("renamedata", "new_dentry", dentry)?;
            (offsets.rename_new_dir, offsets.rename_dir_is_dentry) = match btf.field("renamedata", "new_parent", dentry) {
                Ok(offset) => (offset, 1),
                Err(BtfError::Missing(_)) => (btf.field("renamedata", "new_dir", Shape::PointerTo("inode"))?, 0),
                Err(error) => return Err(error),
            };
            Ok(RenameForm::Data)
        }
        other => Err(BtfError::Strange { what: "vfs_rename".to_owned(), why: format!("it has {other} arguments") }),
    }
}

/// The first, or the second where the first is missing.
fn either(first: Result<u32, BtfError>, second: impl FnOnce() -> Result<u32, BtfError>) -> Result<u32, BtfError> {
    match first {
        Err(BtfError::Missing(_)) => second(),
        found => found,
    }
}
