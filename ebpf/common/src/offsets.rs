//! Where the fields of the kernel's structs are, in bytes. The proxy looks them up in the running kernel's BTF; the programs have them
//! as constants that the verifier knows. One set for all programs: a program whose fields are missing is not loaded.

/// Offsets of struct fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Offsets {
    /// `kernfs_open_file.kn`
    pub file_kn: u32,
    /// `kernfs_node.parent`, `__parent` since 6.15
    pub kn_parent: u32,
    /// `kernfs_node.name`
    pub kn_name: u32,
    /// `kernfs_node.id`
    pub kn_id: u32,
    /// `kernfs_node.priv`
    pub kn_priv: u32,
    /// `cgroup.kn`
    pub cgroup_kn: u32,
    /// `cgroup.level`
    pub cgroup_level: u32,
    /// `cgroup.root`
    pub cgroup_root: u32,
    /// `cgroup.ancestors` (pointers, since 6.1) or `cgroup.ancestor_ids`
    pub cgroup_ancestors: u32,
    /// 1 where they are pointers
    pub ancestors_are_pointers: u32,
    /// `cgroup_root.hierarchy_id`
    pub root_hierarchy: u32,
    /// `task_struct.pid`
    pub task_pid: u32,
    /// `renamedata.new_dentry` (the struct is there since 5.12)
    pub rename_new_dentry: u32,
    /// `renamedata.new_parent`, or `new_dir` before 6.18
    pub rename_new_dir: u32,
    /// 1 where that is a dentry, 0 where it is an inode
    pub rename_dir_is_dentry: u32,
    /// `dentry.d_inode`
    pub dentry_inode: u32,
    /// `dentry.d_name.name`
    pub dentry_name: u32,
    /// `inode.i_ino`
    pub inode_number: u32,
    /// `inode.i_sb`
    pub inode_superblock: u32,
    /// `super_block.s_dev`
    pub superblock_device: u32,
}

/// Offsets of a classic tracepoint's fields in its record, from its `format` file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TracepointOffsets {
    /// `root`: the hierarchy's number
    pub hierarchy: u32,
    /// `id`
    pub id: u32,
    /// `path`: offset and length of the path within the record
    pub path: u32,
    /// Not 0 once they are known
    pub known: u32,
}

const _: () = assert!(size_of::<Offsets>() == 80 && align_of::<Offsets>() == 4);
const _: () = assert!(size_of::<TracepointOffsets>() == 16);

// === impl Offsets ===

impl Offsets {
    /// The offsets as the integers that they are, in their order.
    #[must_use]
    pub fn integers(&self) -> &[u32] {
        // SAFETY: twenty integers, without padding.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>() / 4) }
    }
}

// === impl TracepointOffsets ===

impl TracepointOffsets {
    /// The offsets as the integers that they are, in their order.
    #[must_use]
    pub fn integers(&self) -> &[u32] {
        // SAFETY: four integers, without padding.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>() / 4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_the_same_as_integers() {
        let offsets = Offsets { file_kn: 1, superblock_device: 20, ..Offsets::default() };
        assert_eq!((offsets.integers()[0], offsets.integers()[19], offsets.integers().len()), (1, 20, 20));
        assert_eq!(TracepointOffsets { hierarchy: 1, id: 2, path: 3, known: 4 }.integers(), [1, 2, 3, 4]);
    }
}
