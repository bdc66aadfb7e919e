//! Links in Markdown files: those that lead to a file of ours, and to a heading in it, must lead somewhere. Pure: nothing is fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The headings of each Markdown file, as a link may name them.
pub(crate) type Anchors = BTreeMap<PathBuf, BTreeSet<String>>;

/// The headings of a Markdown text, as forges make anchors of them: lower case, without punctuation, words joined by `-`; a repeated one
/// has a number.
pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let numbered = (1..).map(|nth| format!("{slug}-{nth}"));
                let free = std::iter::once(slug.clone()).chain(numbered).find(|anchor| !anchors.contains(anchor));
                anchors.extend(free);
            }
            _ => {}
        }
    }
    anchors
}

/// What is wrong with the links of the file at `path`, each a line to print. `exists`: whether a path, from the repository's root, is a
/// file or a folder of ours.
pub(crate) fn check(path: &Path, text: &str, exists: impl Fn(&Path) -> bool, anchors: &Anchors) -> Vec<String> {
    let mut complaints = Vec::new();
    for (event, range) in parser(text).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event else { continue };
        if let Some(why) = astray(path, &dest_url, &exists, anchors) {
            let line = text[..range.start].lines().count().max(1);
            complaints.push(format!("line {line}: the link to `{dest_url}` leads nowhere: {why}"));
        }
    }
    complaints
}

fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

fn astray(from: &Path, link: &str, exists: impl Fn(&Path) -> bool, anchors: &Anchors) -> Option<String> {
    // With a scheme it leads to the world.
    if link.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric())) {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { Some(from.to_owned()) } else { below_the_root(from, file) };
    let Some(target) = target.filter(|target| exists(target)) else { return Some("there is no such file".into()) };
    let anchor = anchor?;
    match anchors.get(&target) {
        Some(headings) if headings.contains(anchor) => None,
        Some(_) => Some(format!("{} has no such heading", target.display())),
        None => Some(format!("{} has no headings", target.display())),
    }
}

/// A path that is relative to a file, from the repository's root; `None` where it leads out of it.
fn below_the_root(from: &Path, link: &str) -> Option<PathBuf> {
    let mut path = from.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = "# The guide\n\n## What `it` does, and why\n\n## More\n\n## More\n";

    fn complaints(link: &str) -> Vec<String> {
        let anchors = Anchors::from([(PathBuf::from("docs/guide.md"), anchors(GUIDE))]);
        let exists = |path: &Path| [Path::new("docs/guide.md"), Path::new("docs"), Path::new("LICENSE")].contains(&path);
        check(Path::new("docs/other.md"), &format!("First.\n\nSee [there]({link}).\n"), exists, &anchors)
    }

    #[test]
    fn headings_become_anchors_as_forges_make_them() {
        let expected = ["more", "more-1", "the-guide", "what-it-does-and-why"];
        assert_eq!(anchors(GUIDE).iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_link_to_a_file_a_folder_a_heading_or_the_world_is_fine() {
        for link in ["guide.md", "../docs", "../LICENSE", "guide.md#more-1", "./guide.md#the-guide", "https://example.com/#x"] {
            assert_eq!(complaints(link), [""; 0], "{link}");
        }
    }

    #[test]
    fn a_link_to_nowhere_is_told_with_its_line() {
        assert_eq!(complaints("gone.md"), ["line 3: the link to `gone.md` leads nowhere: there is no such file"]);
        for link in ["/docs/guide.md", "../../LICENSE", "guide.md#less", "../LICENSE#part", "#here"] {
            assert_eq!(complaints(link).len(), 1, "{link}");
        }
    }

    #[test]
    fn what_stands_in_code_is_no_link() {
        let text = "`[a](gone.md)`\n\n    [b](gone.md)\n";
        assert_eq!(check(Path::new("a.md"), text, |_| false, &Anchors::new()), [""; 0]);
    }
}
