//! A configuration file with other backends: comments and layout stay where they can.

use super::EditError;
use super::places::{Edit, Place, Places, Source, TablePlaces};
use crate::config::{Config, TableSpec};
use crate::quoted::Quoted;
use common::backend::Backend;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// How much of a layout may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// None of it.
    Kept,
    /// That of lists of backends that are aliases or in brackets, where nothing else helps.
    ListsAnew,
}

/// The text, changed so that it means `wanted`: the same tables with other backends, or other values in them.
pub fn rewrite(text: &str, file: &Path, wanted: &[TableSpec], layout: Layout) -> Result<String, EditError> {
    let before = Config::parse(text, file)?;
    let Some(changed) = first_change(&before.tables, wanted) else { return Ok(text.to_owned()) };
    let refuse = || EditError::Layout(changed.to_owned());
    let places = Places::read(text).ok_or_else(refuse)?;
    let source = Source::new(text);
    let mut edits = Vec::new();
    for ((old, new), places) in before.tables.iter().zip(wanted).zip(&places.tables) {
        let change = Change { source: &source, places, old, new };
        let list = || (layout == Layout::ListsAnew).then(|| change.list()).flatten();
        edits.extend(change.scalars().or_else(list).ok_or_else(refuse)?);
    }
    let edited = source.edited(edits).ok_or_else(refuse)?;
    if sorted(&Config::parse(&edited, file)?.tables) == sorted(wanted) { Ok(edited) } else { Err(refuse()) }
}

/// The text as it must be in a file in another folder: relative paths of secrets lead to where they led before.
pub fn relocate(text: &str, from: &Path, to: &Path) -> Result<String, EditError> {
    let refuse = || EditError::Layout("file".to_owned());
    let places = Places::read(text).ok_or_else(refuse)?;
    let source = Source::new(text);
    let edit = |path: &serde_yaml::Spanned<String>| {
        let way = way(from, to)?.join(&path.value);
        source.replace(path, &Quoted(way.to_str()?).to_string())
    };
    let relative = places.secret_files().filter(|path| Path::new(&path.value).is_relative());
    let edits: Option<Vec<Edit>> = relative.map(edit).collect();
    edits.and_then(|edits| source.edited(edits)).ok_or_else(refuse)
}

/// The way from one folder to another; both are absolute and free of links.
fn way(to: &Path, from: &Path) -> Option<PathBuf> {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = from.iter().skip(common).map(|_| Component::ParentDir);
    let to = to.into_iter().skip(common);
    Some(up.chain(to).collect())
}

/// The first backend that differs.
fn first_change<'a>(old: &'a [TableSpec], new: &'a [TableSpec]) -> Option<&'a str> {
    let mut all = old.iter().zip(new).flat_map(|(old, new)| {
        let [was, is] = [old, new].map(by_id);
        let gone = old.backends.iter().filter(move |one| is.get(one.id.as_str()) != Some(one));
        gone.chain(new.backends.iter().filter(move |one| !was.contains_key(one.id.as_str())))
    });
    all.next().map(|one| one.id.as_str())
}

fn by_id(spec: &TableSpec) -> HashMap<&str, &Backend> {
    spec.backends.iter().map(|one| (one.id.as_str(), one)).collect()
}

/// In one order, so that equal ones are equal.
fn sorted(specs: &[TableSpec]) -> Vec<TableSpec> {
    let mut specs = specs.to_vec();
    specs.iter_mut().for_each(|spec| spec.backends.sort_by(|a, b| a.id.cmp(&b.id)));
    specs
}

/// What becomes of one table.
struct Change<'a> {
    source: &'a Source<'a>,
    places: &'a TablePlaces,
    old: &'a TableSpec,
    new: &'a TableSpec,
}

impl Change<'_> {
    /// Edits of single values and lines; none if one of them cannot be made.
    fn scalars(&self) -> Option<Vec<Edit>> {
        let [known, wanted] = [self.old, self.new].map(by_id);
        let mut edits = Vec::new();
        for (old, place) in self.old.backends.iter().zip(&self.places.backends.value) {
            match wanted.get(old.id.as_str()) {
                None => edits.push(self.source.remove(place)?),
                Some(new) => edits.extend(self.values(place, old, new)?),
            }
        }
        let new = self.new.backends.iter().filter(|one| !known.contains_key(one.id.as_str()));
        let new: Vec<String> = new.map(item).collect();
        if !new.is_empty() {
            edits.push(self.source.insert_after(self.places.backends.value.last()?, &new)?);
        }
        Some(edits)
    }

    fn values(&self, place: &Place, old: &Backend, new: &Backend) -> Option<Vec<Edit>> {
        let mut edits = Vec::new();
        for ((key, old), (_, new)) in values(old).into_iter().zip(values(new)) {
            if old != new {
                // A zone cannot be taken back by another value.
                edits.push(self.source.set(place, key, &new?)?);
            }
        }
        Some(edits)
    }

    fn list(&self) -> Option<Vec<Edit>> {
        let items: Vec<String> = self.new.backends.iter().map(item).collect();
        Some(vec![self.source.replace_list(self.places, &items)?])
    }
}

/// What a backend's keys say, in the order in which they are added.
fn values(backend: &Backend) -> [(&'static str, Option<Cow<'static, str>>); 6] {
    let Backend { address, weight, zone, state, health, fill, .. } = backend;
    [
        ("address", Some(Quoted(&address.to_string()).to_string().into())),
        ("weight", Some(weight.to_string().into())),
        ("zone", zone.as_ref().map(|zone| Quoted(zone).to_string().into())),
        ("fill", Some(fill.to_string().into())),
        ("state", Some(state.name().into())),
        ("health", Some(health.name().into())),
    ]
}

/// A backend as one line; what is as it would be anyway is left out.
fn item(backend: &Backend) -> String {
    let usual = values(&Backend::new("", backend.address));
    let mut text =
        format!("{{ id: {}, address: {}", Quoted(&backend.id), Quoted(&backend.address.to_string()));
    for ((key, value), _) in values(backend).into_iter().zip(usual).filter(|(one, usual)| one != usual) {
        text += &format!(", {key}: {}", value.unwrap_or_default());
    }
    text + " }"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_between_folders() {
        for (from, to, expected) in
            [("/a/b", "/a/b/c", ".."), ("/a/b", "/a", "b"), ("/a/b", "/x/y", "../../a/b"), ("/a", "/a", "")]
        {
            assert_eq!(way(Path::new(from), Path::new(to)).unwrap(), Path::new(expected), "{from} {to}");
        }
    }
}
