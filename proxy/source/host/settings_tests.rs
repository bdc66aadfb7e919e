//! The kubelet's configuration file, as found in the field and as nobody should write it.

use super::*;

fn read_from(yaml: &str, reserved: Option<&str>) -> (Settings, Skipped) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut skipped = Skipped::default();
    let reserved = reserved.map(|list| CpuSet::parse(list).unwrap());
    (Settings::read(&file, reserved.as_ref(), &mut skipped), skipped)
}

fn set(list: &str) -> CpuSet {
    CpuSet::parse(list).unwrap()
}

#[test]
fn reserved_cpus_of_a_static_policy_are_kept_and_always_shared() {
    let (settings, skipped) = read_from("cpuManagerPolicy: static\nreservedSystemCPUs: 0-1,8\n", None);
    assert_eq!((settings.cpus, settings.always_shared), (Cpus::AllBut(set("0-1,8")), Some(set("0-1,8"))));
    assert_eq!(skipped.total(), 0);
}

#[test]
fn strictly_reserved_cpus_are_kept_from_the_shared_pool_too() {
    let yaml = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\n";
    let (settings, _) = read_from(yaml, None);
    assert_eq!((settings.cpus, settings.always_shared), (Cpus::AllBut(set("0")), None));
}

#[test]
fn reserved_amounts_do_not_say_which_cpus_so_none_are_told() {
    for yaml in ["systemReserved: {cpu: 500m}", "kubeReserved: {cpu: 1}", "kubeReserved: {cpu: \"1\"}"] {
        let (settings, _) = read_from(&format!("cpuManagerPolicy: static\n{yaml}\n"), None);
        assert!(matches!(settings.cpus, Cpus::None(why) if why.contains("--reserved-cpus")), "{yaml}: {settings:?}");
    }
    let (settings, _) = read_from("cpuManagerPolicy: static\nsystemReserved: {cpu: 0, memory: 1Gi}\n", None);
    assert_eq!(settings.cpus, Cpus::AllBut(CpuSet::new()));
}

#[test]
fn without_a_static_policy_no_cpu_and_no_memory_can_be_had() {
    let (settings, _) = read_from("kind: KubeletConfiguration\nreservedSystemCPUs: \"0\"\n", None);
    assert!(matches!((settings.cpus, settings.memory), (Cpus::None(_), Memory::None(_))));
}

#[test]
fn the_flag_wins_over_the_file() {
    let (settings, _) = read_from("cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n", Some("1"));
    assert_eq!((settings.cpus, settings.always_shared), (Cpus::AllBut(set("1")), Some(set("1"))));
    let (settings, _) = read_from("cpuManagerPolicy: none\n", Some(""));
    assert_eq!((settings.cpus, settings.always_shared), (Cpus::AllBut(CpuSet::new()), None));
}

#[test]
fn reserved_memory_is_kept_by_node_and_type() {
    let yaml = "memoryManagerPolicy: Static\nreservedMemory:\n- {numaNode: 0, limits: {memory: 50Mi, hugepages-2Mi: 4Mi}}\n- {numaNode: 1, limits: {memory: 1024}}\n";
    let kept = [((0, "memory".to_owned()), 50 << 20), ((0, "hugepages-2Mi".to_owned()), 4 << 20), ((1, "memory".to_owned()), 1024)];
    assert_eq!(read_from(yaml, None).0.memory, Memory::AllBut(kept.into()));
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_nothing_is_taken_for_free() {
    for yaml in ["\t- a: [", "[]", "cpuManagerPolicy: [static]", "\u{0}"] {
        let (settings, skipped) = read_from(yaml, None);
        assert!(matches!(settings.cpus, Cpus::None(why) if why.contains("--reserved-cpus")), "{yaml}: {settings:?}");
        assert_eq!(skipped.count(Why::BadNode), 1, "{yaml}");
    }
    let (settings, skipped) = read_from("cpuManagerPolicy: static\nreservedSystemCPUs: 0-9999\n", None);
    assert!(matches!(settings.cpus, Cpus::None(_)));
    assert!(skipped.named()[0].detail.contains("0-9999"), "{skipped:?}");
    let dir = tempfile::tempdir().unwrap();
    let mut skipped = Skipped::default();
    assert!(matches!(Settings::read(dir.path(), None, &mut skipped).cpus, Cpus::None(_)), "a directory");
    assert_eq!(skipped.count(Why::BadNode), 1);
}

#[test]
fn without_a_file_nothing_is_kept_from_anybody() {
    let mut skipped = Skipped::default();
    assert_eq!(Settings::read(Path::new("/nonexistent/config.yaml"), None, &mut skipped), Settings::default());
    assert_eq!(skipped.total(), 0);
}
