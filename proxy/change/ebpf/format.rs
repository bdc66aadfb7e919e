//! A classic tracepoint's record, as tracefs describes it: for kernels that have no BTF.

use std::path::Path;

use podresources_proxy_ebpf_common::TracepointOffsets;

/// Where tracefs is mounted.
pub(super) const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Why the record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    /// Nothing to read.
    #[error("no events/cgroup/cgroup_mkdir/format in tracefs")]
    Missing,
    /// It is not as the programs need it.
    #[error("the record of cgroup_mkdir has no field `{0}` of the size we know")]
    Field(&'static str),
}

/// The format of `cgroup_mkdir`, which `cgroup_rmdir` and `cgroup_release` share (one event class).
pub(super) fn read(tracefs: &[&Path]) -> Result<TracepointOffsets, FormatError> {
    let file = |dir: &&Path| std::fs::read_to_string(dir.join("events/cgroup/cgroup_mkdir/format")).ok();
    parse(&tracefs.iter().find_map(file).ok_or(FormatError::Missing)?)
}

fn parse(format: &str) -> Result<TracepointOffsets, FormatError> {
    let field = |declaration: &str, size: u32| {
        let line = format.lines().map(str::trim).find_map(|line| line.strip_prefix(declaration))?;
        let value = |key: &str| -> Option<u32> { line.split(';').find_map(|part| part.trim().strip_prefix(key))?.parse().ok() };
        (value("size:")? == size).then(|| value("offset:")).flatten().filter(|offset| *offset < 4096)
    };
    Ok(TracepointOffsets {
        hierarchy: field("field:int root;", 4).ok_or(FormatError::Field("root"))?,
        id: field("field:u64 id;", 8).ok_or(FormatError::Field("id"))?,
        path: field("field:__data_loc char[] path;", 4).ok_or(FormatError::Field("path"))?,
        known: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: cgroup_mkdir\nID: 334\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int root;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int level;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:u64 id;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] path;\toffset:24;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"root=%d id=%llu level=%d path=%s\", REC->root, REC->id, REC->level, __get_str(path)\n";

    #[test]
    fn the_record_is_understood() {
        assert_eq!(parse(FORMAT), Ok(TracepointOffsets { hierarchy: 8, id: 16, path: 24, known: 1 }));
    }

    #[test]
    fn a_record_with_other_fields_is_refused_by_the_fields_name() {
        assert_eq!(parse(&FORMAT.replace("u64 id", "int id")), Err(FormatError::Field("id")));
        assert_eq!(parse(&FORMAT.replace("offset:16;\tsize:8", "offset:16;\tsize:4")), Err(FormatError::Field("id")));
        assert_eq!(parse(&FORMAT.replace("offset:24", "offset:-24")), Err(FormatError::Field("path")));
        assert_eq!(parse(""), Err(FormatError::Field("root")));
    }
}
