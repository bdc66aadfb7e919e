use proptest::prelude::*;

use super::*;

const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const BARS: &str = "01234567_89ab_cdef_0123_456789abcdef";
const STATIC: &str = "0123456789abcdef0123456789abcdef";
const OTHER: &str = "fedcba98-7654-3210-fedc-ba9876543210";
const ID: &str = "4a1b2c3d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcdef";
const OURS: &str = "00000000000000000000000000000000000000000000000000000000000000aa";

#[expect(clippy::unnecessary_wraps, reason = "as the parser gives it")]
fn pod(uid: &str) -> Option<Owner> {
    Some(Owner::Pod { uid: PodUid::parse(uid).unwrap(), container: None })
}

#[expect(clippy::unnecessary_wraps, reason = "as the parser gives it")]
fn container(uid: &str, id: &str) -> Option<Owner> {
    Some(Owner::Pod { uid: PodUid::parse(uid).unwrap(), container: Some(id.to_owned()) })
}

#[expect(clippy::unnecessary_wraps, reason = "as the parser gives it")]
fn unit(name: &str) -> Option<Owner> {
    Some(Owner::Unit(name.to_owned()))
}

/// From the first cgroup namespace.
fn seen(path: &str) -> Option<Owner> {
    Vantage::default().owner(path)
}

/// The cgroup paths of a pod's container under every driver, runtime and class, and in nested roots.
fn forms() -> Vec<String> {
    let mut forms = Vec::new();
    for scope in [format!("cri-containerd-{ID}.scope"), format!("crio-{ID}.scope"), format!("docker-{ID}.scope")] {
        for (above, stem) in [
            ("", "kubepods"),
            ("/kubelet.slice", "kubelet-kubepods"),
            ("/a.slice/a-b.slice", "a-b-kubepods"),
            ("/docker/0123", "kubepods"),
        ] {
            forms.push(format!("{above}/{stem}.slice/{stem}-pod{BARS}.slice/{scope}"));
            for class in CLASSES {
                forms.push(format!("{above}/{stem}.slice/{stem}-{class}.slice/{stem}-{class}-pod{BARS}.slice/{scope}"));
            }
        }
    }
    for above in ["", "/kubelet", "/docker/0123/kubelet", "/lab/node"] {
        for name in [ID.to_owned(), format!("crio-{ID}")] {
            forms.push(format!("{above}/kubepods/pod{UID}/{name}"));
            for class in CLASSES {
                forms.push(format!("{above}/kubepods/{class}/pod{STATIC}/{name}"));
            }
        }
    }
    forms
}

/// What a cgroup namespace whose root is `root` shows of a path.
fn shown(path: &str, root: &str) -> String {
    let (path, root): (Vec<_>, Vec<_>) = (segments(path).collect(), segments(root).collect());
    let common = path.iter().zip(&root).take_while(|(a, b)| a == b).count();
    let up = root.iter().skip(common).map(|_| "..");
    format!("/{}", up.chain(path.iter().skip(common).copied()).collect::<Vec<_>>().join("/"))
}

#[test]
fn a_container_is_told_by_every_driver_runtime_and_class() {
    for form in forms() {
        assert_eq!(seen(&form), container(UID, ID), "{form}");
        assert_eq!(seen(&format!("{form}/nested/child")), container(UID, ID), "{form}");
    }
}

#[test]
fn a_process_in_the_pods_own_cgroup_or_a_monitors_is_in_no_container() {
    assert_eq!(seen(&format!("/kubepods/burstable/pod{UID}")), pod(UID));
    let slice = format!("/kubepods.slice/kubepods-pod{BARS}.slice");
    assert_eq!(seen(&slice), pod(UID));
    assert_eq!(seen(&format!("{slice}/crio-conmon-{ID}.scope")), pod(UID));
}

#[test]
fn a_unit_is_told_and_what_it_has_made_below_itself_is_still_it() {
    assert_eq!(seen("/system.slice/multus.service"), unit("multus.service"));
    assert_eq!(seen("/system.slice/system-getty.slice/getty@tty1.service"), unit("getty@tty1.service"));
    assert_eq!(seen("/init.scope"), unit("init.scope"));
    assert_eq!(seen("/system.slice/_cpu.service"), unit("cpu.service"));
    assert_eq!(seen(&format!("/system.slice/docker-{ID}.scope/init")), unit(&format!("docker-{ID}.scope")));
    assert_eq!(seen("/system.slice/containerd.service/other.service"), unit("containerd.service"));
}

#[test]
fn all_that_a_user_runs_in_sessions_is_one_client() {
    for below in ["session-3.scope", "session-4.scope", "user@1000.service/app.slice/any.service", "user@1000.service/init.scope"] {
        assert_eq!(seen(&format!("/user.slice/user-1000.slice/{below}")), unit("user-1000.slice"), "{below}");
    }
}

#[test]
fn neither_pod_nor_unit_is_nobodys() {
    for path in [
        "/",
        "",
        "/docker/0123",
        "/system.slice",
        "/kubepods",
        "/kubepods.slice/kubepods-burstable.slice",
        "/kubepods/burstable/podX",
        "/.service",
        "/user.slice/user-.slice",
    ] {
        assert_eq!(seen(path), None, "{path}");
    }
}

#[test]
fn a_pod_must_lie_directly_below_a_kubepods_root() {
    for path in [
        format!("/pod{UID}"),
        format!("/lab/pod{UID}/{ID}"),
        format!("/kubepods/other/pod{UID}"),
        format!("/kubepods/burstable/besteffort/pod{UID}"),
        format!("/kubepods-pod{BARS}.slice"),
        // A slice's name says where it lies.
        format!("/kubepods.slice/other-pod{BARS}.slice"),
        format!("/kubepods.slice/kubepods-burstable.slice/kubepods-pod{BARS}.slice"),
        format!("/kubepods.slice/kubepods-burstable-pod{BARS}.slice"),
        format!("/other.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{BARS}.slice"),
        format!("/kubepods.slice/pod{UID}"),
        format!("/kubepods/kubepods-pod{BARS}.slice"),
    ] {
        assert_eq!(seen(&path), None, "{path}");
    }
}

#[test]
fn a_pod_forged_below_a_unit_or_a_users_session_is_the_unit() {
    let forged = format!("kubepods/burstable/pod{OTHER}/{ID}");
    assert_eq!(seen(&format!("/system.slice/evil.service/{forged}")), unit("evil.service"));
    assert_eq!(seen(&format!("/user.slice/user-7.slice/user@7.service/{forged}")), unit("user-7.slice"));
}

#[test]
fn a_cluster_in_a_pod_sees_its_own_pods_and_the_outer_one_sees_one_pod() {
    let node = format!("/kubepods/burstable/pod{UID}/{ID}");
    let inner = format!("{node}/kubelet.slice/kubelet-kubepods.slice");
    let peer = format!("{inner}/kubelet-kubepods-pod{}.slice/cri-containerd-{ID}.scope", OTHER.replace('-', "_"));
    assert_eq!(seen(&peer), container(UID, ID));
    for own in [
        format!("{inner}/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{BARS}.slice/cri-containerd-{OURS}.scope"),
        format!("{node}/system.slice/podresources-proxy.service"),
    ] {
        let vantage = Vantage::new("", &own);
        assert_eq!(vantage.owner(&peer), container(OTHER, ID), "from {own}");
        assert_eq!(vantage.owner(&format!("{node}/system.slice/kubelet.service")), unit("kubelet.service"), "from {own}");
        // The outer pod's other containers have left our way within the pod: they cannot pass for pods of ours.
        let beside =
            format!("/kubepods/burstable/pod{UID}/{OURS}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{BARS}.slice");
        assert_eq!(vantage.owner(&beside), container(UID, OURS), "from {own}");
    }
}

#[test]
fn a_node_in_a_docker_scope_sees_its_pods_from_its_own_unit() {
    let node = format!("/system.slice/docker-{ID}.scope");
    let vantage = Vantage::new("", &format!("{node}/system.slice/podresources-proxy.service"));
    let peer = format!("{node}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{BARS}.slice/cri-containerd-{ID}.scope");
    assert_eq!(vantage.owner(&peer), container(UID, ID));
    assert_eq!(vantage.owner("/system.slice/other.service"), unit("other.service"));
}

#[test]
fn our_own_pods_other_containers_are_our_own_pod() {
    let ours = format!("/kubepods/burstable/pod{UID}/{OURS}");
    for vantage in [Vantage::new("", &ours), Vantage::new(&ours, &ours)] {
        let beside = format!("/kubepods/burstable/pod{UID}/{ID}/kubepods/pod{OTHER}");
        let beside = if vantage.root.is_empty() { beside } else { shown(&beside, &ours) };
        assert_eq!(vantage.owner(&beside), container(UID, ID));
    }
    assert_eq!(Vantage::new(&ours, &ours).owner("/"), container(UID, OURS));
}

#[test]
fn where_our_namespaces_root_is_unknown_other_pods_are_still_told() {
    let ours = [
        format!("/kubepods/burstable/pod{OTHER}/{OURS}"),
        format!("/kubepods/pod{OTHER}/{OURS}"),
        format!(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{}.slice/cri-containerd-{OURS}.scope",
            OTHER.replace('-', "_")
        ),
        format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice/crio-{OURS}.scope/container",
            OTHER.replace('-', "_")
        ),
    ];
    for root in &ours {
        for form in forms() {
            let path = shown(&form, root);
            assert_eq!(seen(&path), container(UID, ID), "{path} from {root}");
            assert_eq!(Vantage::new(root, root).owner(&path), container(UID, ID), "{path} from {root}, known");
        }
        let path = shown("/system.slice/multus.service", root);
        assert_eq!(seen(&path), unit("multus.service"), "{path} from {root}");
    }
}

#[test]
fn where_our_namespaces_root_is_unknown_a_container_beside_ours_cannot_pass_for_another_pod() {
    for forger in [format!("/../{ID}"), format!("/../cri-containerd-{ID}.scope"), format!("/../../crio-{ID}.scope")] {
        for forged in ["", &format!("/pod{OTHER}"), &format!("/kubepods/pod{OTHER}"), "/some.service"] {
            let path = format!("{forger}{forged}");
            assert_eq!(seen(&path), None, "{path}");
        }
    }
    assert_eq!(seen(&format!("/../pod{OTHER}/{ID}")), None);
}

#[test]
fn a_pod_in_any_hierarchy_counts_before_a_unit_in_another() {
    let text = format!(
        "12:memory:/\n9:name=systemd:/system.slice/containerd.service\n3:cpuset:/kubepods/burstable/pod{UID}/{ID}\n0::/system.slice/containerd.service\n"
    );
    assert_eq!(owner(memberships(&text), |_| None), container(UID, ID));
    let text = "3:cpuset:/\n1:name=systemd:/system.slice/ntp.service\n0::/\n";
    assert_eq!(owner(memberships(text), |_| None), unit("ntp.service"));
}

#[test]
fn hierarchies_are_believed_in_an_order_and_not_as_they_come() {
    let lines = [format!("5:memory:/kubepods/pod{OTHER}/{ID}\n"), format!("3:cpu,cpuset:/kubepods/pod{UID}/{ID}\n")];
    for text in [lines.concat(), [lines[1].as_str(), &lines[0]].concat()] {
        assert_eq!(owner(memberships(&text), |_| None), container(UID, ID));
    }
}

#[test]
fn a_removed_cgroup_still_says_whose_it_was_and_other_lines_say_nothing() {
    let text = format!("nonsense\n1:\n\n0::/kubepods/pod{UID} (deleted)\n");
    let found: Vec<_> = memberships(&text).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(owner(found, |_| None), pod(UID));
}

/// A cgroup's name as somebody might choose it to be taken for somebody else.
fn chosen() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("kubepods".to_owned()),
        Just("kubepods.slice".to_owned()),
        Just("burstable".to_owned()),
        Just("kubepods-burstable.slice".to_owned()),
        Just(format!("pod{OTHER}")),
        Just(format!("kubepods-pod{}.slice", OTHER.replace('-', "_"))),
        Just(format!("kubepods-burstable-pod{}.slice", OTHER.replace('-', "_"))),
        Just("other.service".to_owned()),
        Just("user.slice".to_owned()),
        Just("user-0.slice".to_owned()),
        Just(format!("cri-containerd-{ID}.scope")),
        "[a-z:_@ -][a-z:_.@ -]{0,12}",
    ]
}

proptest! {
    #[test]
    fn whatever_a_container_makes_below_itself_it_stays_the_same_pod(
        form in proptest::sample::select(forms()),
        below in proptest::collection::vec(chosen(), 0..6),
    ) {
        prop_assert_eq!(seen(&format!("{form}/{}", below.join("/"))), container(UID, ID));
    }

    #[test]
    fn whatever_a_unit_makes_below_itself_it_stays_the_same_unit(below in proptest::collection::vec(chosen(), 0..6)) {
        prop_assert_eq!(seen(&format!("/system.slice/a.service/{}", below.join("/"))), unit("a.service"));
    }

    #[test]
    fn where_our_namespace_starts_makes_no_difference_once_it_is_known(
        path in proptest::collection::vec(chosen(), 0..6),
        root in proptest::collection::vec(chosen(), 0..6),
    ) {
        let (path, root) = (path.join("/"), root.join("/"));
        let above = Vantage::new("", &root);
        prop_assert_eq!(Vantage::new(&root, &root).owner(&shown(&path, &root)), above.owner(&path));
    }

    #[test]
    fn any_text_is_read(text in any::<String>(), root in any::<String>(), own in any::<String>()) {
        let vantage = Vantage::new(&root, &own);
        for found in [owner(memberships(&text), |_| Some(&vantage)), vantage.owner(&text)] {
            prop_assert!(!matches!(found, Some(Owner::Unit(name)) if name.is_empty() || name.contains('/')));
        }
    }
}
