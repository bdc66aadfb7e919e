//! Pure: from the cgroup paths of a process, as `/proc/<pid>/cgroup` spells them, to the pod or the systemd unit that it belongs to.
//!
//! A cgroup below a container's or a unit's own may have been made, and named, by whoever runs there. So the outermost pod counts,
//! directly under a kubepods root, and the outermost unit; only what lies above our own pod or unit is passed over, because we run in it
//! ourselves (a node in a container, a cluster in a cluster).

use super::uid::PodUid;

/// What the kernel appends to the path of a cgroup that has been removed while processes were left in it.
const DELETED: &str = " (deleted)";
/// The pods' classes that have a cgroup of their own; guaranteed pods lie in the root itself.
const CLASSES: [&str; 2] = ["burstable", "besteffort"];
/// The kinds of systemd units that processes can be in, slices apart.
const UNITS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];
/// Fewer digits make no container's id; all known runtimes have 64.
const SHORTEST_ID: usize = 32;

/// To whom a process belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A pod.
    Pod {
        /// Its uid.
        uid: PodUid,
        /// The container's id; `None` for what is in none, like a runtime's monitor.
        container: Option<String>,
    },
    /// A unit of the system's service manager. For a user's sessions and services the user's slice, `user-1000.slice`: what is below it
    /// comes and goes with each login, or is the user's own to name.
    Unit(String),
}

/// One line of `/proc/<pid>/cgroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    /// The hierarchy's controllers, `name=systemd` for the named one of v1, empty for v2.
    pub controllers: &'a str,
    /// The cgroup, relative to the root of the reader's cgroup namespace.
    pub path: &'a str,
}

/// From where we see a hierarchy.
///
/// The default is that of a process in the first cgroup namespace, or in one whose root's place is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vantage {
    /// Where the root of our cgroup namespace is.
    root: Vec<String>,
    /// The part of our own path that is above our own pod or unit. No peer can have made it.
    above: Vec<String>,
}

/// What the names below a cgroup of the kubelet's begin with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stem<'a> {
    /// Nothing: the cgroupfs driver's.
    Plain,
    /// The slice's own name: systemd's.
    Slice(&'a str),
}

/// A pod or a unit in a path.
struct Place {
    /// Which segment it is.
    at: usize,
    /// The first segment that it does not name itself: a pod's containers are its own.
    end: usize,
    owner: Owner,
}

/// The lines of `/proc/<pid>/cgroup`; what is none is passed over.
pub fn memberships(text: &str) -> impl Iterator<Item = Membership<'_>> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(Membership { controllers, path: path.strip_suffix(DELETED).unwrap_or(path) })
    })
}

/// To whom a process belongs by all its memberships together, `vantage` being ours of each hierarchy. A pod in any of them counts before
/// a unit: not every hierarchy is the kubelet's.
pub fn owner<'a>(
    memberships: impl IntoIterator<Item = Membership<'a>>,
    vantage: impl Fn(&str) -> Option<&'a Vantage>,
) -> Option<Owner> {
    let nowhere = Vantage::default();
    let mut found: Vec<(u8, Owner)> = memberships
        .into_iter()
        .filter_map(|Membership { controllers, path }| {
            let owner = vantage(controllers).unwrap_or(&nowhere).owner(path)?;
            Some((rank(controllers, &owner), owner))
        })
        .collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().next().map(|(_, owner)| owner)
}

/// In which order hierarchies are believed where they differ, least first: pods by cpuset, which is what we are about, units by where
/// systemd keeps them.
fn rank(controllers: &str, owner: &Owner) -> u8 {
    let is_cpuset = controllers.split(',').any(|controller| controller == "cpuset");
    match (owner, controllers) {
        (Owner::Pod { .. }, _) if is_cpuset => 0,
        (Owner::Pod { .. }, "") => 1,
        (Owner::Pod { .. }, _) => 2,
        (Owner::Unit(_), "name=systemd") => 3,
        (Owner::Unit(_), "") => 4,
        (Owner::Unit(_), _) => 5,
    }
}

// === impl Vantage ===

impl Vantage {
    /// We see a hierarchy from a cgroup namespace whose root is at `root`, and are in `own`; both from the hierarchy's own root on.
    #[must_use]
    pub fn new(root: &str, own: &str) -> Self {
        let own: Vec<&str> = segments(own).collect();
        let above = places(&own).pop().map_or(0, |innermost| innermost.at);
        Self { root: owned(segments(root)), above: owned(own.into_iter().take(above)) }
    }

    /// Whose a path is, as the kernel shows it to us.
    #[must_use]
    pub fn owner(&self, path: &str) -> Option<Owner> {
        let up = segments(path).take_while(|segment| *segment == "..").count();
        let shown = segments(path).skip(up);
        match self.root.len().checked_sub(up) {
            Some(kept) => self.owner_of(&self.root.iter().take(kept).map(String::as_str).chain(shown).collect::<Vec<_>>()),
            None => owner_below_unknown(up, &shown.collect::<Vec<_>>()),
        }
    }

    /// Whose a whole path is.
    fn owner_of(&self, path: &[&str]) -> Option<Owner> {
        let common = path.iter().zip(&self.above).take_while(|(a, b)| a == b).count();
        let mut outer = None;
        for place in places(path) {
            if place.at >= common {
                // Whoever has left our way within a pod's containers is that pod, whatever it calls its cgroups.
                return match outer {
                    Some(Place { end, owner, .. }) if common < end => Some(owner),
                    _ => Some(place.owner),
                };
            }
            outer = Some(place);
        }
        outer.map(|place| place.owner)
    }
}

/// Whose a path is of which we see only the end: it leads `up` from our namespace's root, which is who knows where, and then down.
fn owner_below_unknown(up: usize, shown: &[&str]) -> Option<Owner> {
    // Next to a container's own cgroup are those of the same pod, above them the pods of a class, then the classes.
    let sees_pods = up >= 2;
    let class = shown.first().and_then(|class| class_stem(class));
    let pod = match (class, shown) {
        (Some(stem), [_, pod, below @ ..]) if sees_pods => uid_below(stem, pod).map(|uid| (uid, below)),
        (None, [pod, below @ ..]) if sees_pods => uid_below_unknown(pod).map(|uid| (uid, below)),
        _ => None,
    };
    if let Some((uid, below)) = pod {
        return Some(Owner::Pod { uid, container: below.first().and_then(|name| container_id(name)) });
    }
    // A container beside ours, or what it has made.
    if shown.first().is_some_and(|first| container_id(first).is_some()) {
        return None;
    }
    places(shown).into_iter().next().map(|place| place.owner)
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

fn owned<'a>(segments: impl Iterator<Item = &'a str>) -> Vec<String> {
    segments.map(str::to_owned).collect()
}

/// The pods and units of a path, outermost first.
fn places(path: &[&str]) -> Vec<Place> {
    let mut places = Vec::new();
    let mut at = 0;
    while let Some(segment) = path.get(at) {
        let place = pod_below(path, at).or_else(|| user(path, at)).or_else(|| {
            let is_unit = UNITS.iter().any(|kind| segment.strip_suffix(kind).is_some_and(|name| !name.is_empty()));
            is_unit.then(|| Place { at, end: at + 1, owner: Owner::Unit(unescaped(segment).to_owned()) })
        });
        at = place.as_ref().map_or(at + 1, |place| place.end);
        places.extend(place);
    }
    places
}

/// The pod directly below a kubepods root, where segment `root` is one.
fn pod_below(path: &[&str], root: usize) -> Option<Place> {
    let stem = root_stem(path, root)?;
    let next = path.get(root + 1)?;
    let (stem, at) = match class_stem(next) {
        // The class lies in this root, and in no other.
        Some(class) if class.parent() == Some(stem) => (class, root + 2),
        _ => (stem, root + 1),
    };
    let uid = uid_below(stem, path.get(at)?)?;
    let container = path.get(at + 1).and_then(|name| container_id(name));
    Some(Place { at, end: (at + 2).min(path.len()), owner: Owner::Pod { uid, container } })
}

/// The stem of a kubepods root.
fn root_stem<'a>(path: &[&'a str], at: usize) -> Option<Stem<'a>> {
    let name = *path.get(at)?;
    if name == "kubepods" {
        return Some(Stem::Plain);
    }
    let stem = name.strip_suffix(".slice")?;
    let rooted = match stem.strip_suffix("kubepods")? {
        "" => true,
        // The first that we see may have its parent out of sight.
        prefix if at == 0 => prefix.ends_with('-'),
        prefix => path[at - 1].strip_suffix(".slice").is_some_and(|above| prefix.strip_suffix('-') == Some(above)),
    };
    rooted.then_some(Stem::Slice(stem))
}

/// The stem of a class.
fn class_stem(name: &str) -> Option<Stem<'_>> {
    if CLASSES.contains(&name) {
        return Some(Stem::Plain);
    }
    let stem = name.strip_suffix(".slice")?;
    let above = CLASSES.iter().find_map(|class| stem.strip_suffix(class))?.strip_suffix('-')?;
    is_root_stem(above).then_some(Stem::Slice(stem))
}

fn is_root_stem(stem: &str) -> bool {
    stem.strip_suffix("kubepods").is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
}

/// The pod of a segment that lies directly below.
fn uid_below(stem: Stem<'_>, segment: &str) -> Option<PodUid> {
    let uid = match stem {
        Stem::Slice(stem) => segment.strip_suffix(".slice")?.strip_prefix(stem)?.strip_prefix("-pod")?,
        Stem::Plain => segment.strip_prefix("pod")?,
    };
    PodUid::parse(uid)
}

/// The pod of a segment that lies out of sight.
fn uid_below_unknown(segment: &str) -> Option<PodUid> {
    match segment.strip_suffix(".slice") {
        Some(slice) => {
            let (stem, uid) = slice.rsplit_once("-pod")?;
            let root = CLASSES.iter().find_map(|class| stem.strip_suffix(class)?.strip_suffix('-')).unwrap_or(stem);
            is_root_stem(root).then(|| PodUid::parse(uid))?
        }
        None => uid_below(Stem::Plain, segment),
    }
}

/// A container's id from its cgroup's name: `<id>`, `<runtime>-<id>.scope`. CRI-O's monitor of a container is none.
fn container_id(name: &str) -> Option<String> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() >= SHORTEST_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && !runtime.ends_with("conmon")).then(|| id.to_owned())
}

/// The slice of a user, where segment `at` is what all users' slices lie in.
fn user(path: &[&str], at: usize) -> Option<Place> {
    let slice = path.get(at + 1).filter(|_| path[at] == "user.slice")?;
    let id = slice.strip_prefix("user-")?.strip_suffix(".slice")?;
    let is_user = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    is_user.then(|| Place { at: at + 1, end: at + 2, owner: Owner::Unit((*slice).to_owned()) })
}

/// systemd puts a bar before a name that would clash with a file of the kernel's.
fn unescaped(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

// === impl Stem ===

impl Stem<'_> {
    /// That of the cgroup above a class.
    fn parent(self) -> Option<Self> {
        match self {
            Self::Plain => Some(Self::Plain),
            Self::Slice(name) => name.rsplit_once('-').map(|(above, _)| Self::Slice(above)),
        }
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
