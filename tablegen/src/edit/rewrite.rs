//! A configuration file with other backends. Comments and layout stay where possible.

use super::EditError;
use super::spans::{BackendScalars, ConfigSpans, Edit, SourceText, TableSpans};
use crate::config::Quoted;
use crate::config::{Config, TableSpec};
use common::backend::Backend;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// How much of the layout may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Nothing.
    Kept,
    /// Lists of backends that are aliases or stand in brackets may be written again, if no smaller change is
    /// possible.
    RewriteLists,
}

/// The text, changed so that it means `wanted`: the same tables with other backends or other values of
/// backends.
pub fn rewrite(text: &str, file: &Path, wanted: &[TableSpec], layout: Layout) -> Result<String, EditError> {
    let before = Config::parse(text, file)?;
    let Some(changed) = first_change(&before.tables, wanted) else { return Ok(text.to_owned()) };
    let refuse = || EditError::Layout(changed.to_owned());
    let spans = ConfigSpans::read(text).ok_or_else(refuse)?;
    let source = SourceText::new(text);
    let mut edits = Vec::new();
    for ((old, new), spans) in before.tables.iter().zip(wanted).zip(&spans.tables) {
        let change = TableRewrite { source: &source, spans, old, new };
        let list = || (layout == Layout::RewriteLists).then(|| change.list()).flatten();
        edits.extend(change.scalars().or_else(list).ok_or_else(refuse)?);
    }
    let edited = source.edited(edits).ok_or_else(refuse)?;
    let mut after = Config::parse(&edited, file)?;
    // `rows: auto` is the parent's number of rows, which the text does not say.
    for spec in after.tables.iter_mut().filter(|spec| after.auto_rows.contains(&spec.name)) {
        let same = wanted.iter().find(|wanted| wanted.name == spec.name);
        spec.rows = same.map_or(spec.rows, |wanted| wanted.rows);
    }
    if sorted(&after.tables) == sorted(wanted) { Ok(edited) } else { Err(refuse()) }
}

/// The text for a file in another folder: relative paths of secrets still lead to the same files.
pub fn relocate(text: &str, from: &Path, to: &Path) -> Result<String, EditError> {
    let refuse = || EditError::Layout("file".to_owned());
    let spans = ConfigSpans::read(text).ok_or_else(refuse)?;
    let source = SourceText::new(text);
    let edit = |path: &serde_yaml::Spanned<String>| {
        let moved = relative_path(from, to)?.join(&path.value);
        source.replace(path, &Quoted(moved.to_str()?).to_string())
    };
    let relative = spans.secret_files().filter(|path| Path::new(&path.value).is_relative());
    let edits: Option<Vec<Edit>> = relative.map(edit).collect();
    edits.and_then(|edits| source.edited(edits)).ok_or_else(refuse)
}

/// The relative path between two folders. Both are absolute and contain no links.
fn relative_path(to: &Path, from: &Path) -> Option<PathBuf> {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = from.iter().skip(common).map(|_| Component::ParentDir);
    let to = to.into_iter().skip(common);
    Some(up.chain(to).collect())
}

/// The id of the first backend that differs.
fn first_change<'a>(old: &'a [TableSpec], new: &'a [TableSpec]) -> Option<&'a str> {
    let mut all = old.iter().zip(new).flat_map(|(old, new)| {
        let [was, is] = [old, new].map(by_id);
        let gone = old.backends.iter().filter(move |old| is.get(old.id.as_str()) != Some(old));
        gone.chain(new.backends.iter().filter(move |new| !was.contains_key(new.id.as_str())))
    });
    all.next().map(|backend| backend.id.as_str())
}

fn by_id(spec: &TableSpec) -> HashMap<&str, &Backend> {
    spec.backends.iter().map(|backend| (backend.id.as_str(), backend)).collect()
}

/// The tables with backends in order of id, for comparison.
fn sorted(specs: &[TableSpec]) -> Vec<TableSpec> {
    let mut specs = specs.to_vec();
    specs.iter_mut().for_each(|spec| spec.backends.sort_by(|a, b| a.id.cmp(&b.id)));
    specs
}

/// The change of one table.
struct TableRewrite<'a> {
    source: &'a SourceText<'a>,
    spans: &'a TableSpans,
    old: &'a TableSpec,
    new: &'a TableSpec,
}

impl TableRewrite<'_> {
    /// Edits of single values and lines. None if one of them is not possible.
    fn scalars(&self) -> Option<Vec<Edit>> {
        let [known, wanted] = [self.old, self.new].map(by_id);
        let mut edits = Vec::new();
        for (old, span) in self.old.backends.iter().zip(&self.spans.backends.value) {
            match wanted.get(old.id.as_str()) {
                None => edits.push(self.source.remove(span)?),
                Some(new) => edits.extend(self.values(span, old, new)?),
            }
        }
        let new = self.new.backends.iter().filter(|new| !known.contains_key(new.id.as_str()));
        let new: Vec<String> = new.map(item).collect();
        if !new.is_empty() {
            edits.push(self.source.insert_after(self.spans.backends.value.last()?, &new)?);
        }
        Some(edits)
    }

    fn values(
        &self,
        span: &serde_yaml::Spanned<BackendScalars>,
        old: &Backend,
        new: &Backend,
    ) -> Option<Vec<Edit>> {
        let mut edits = Vec::new();
        for ((key, old), (_, new)) in values(old).into_iter().zip(values(new)) {
            if old != new {
                // A zone cannot be removed by writing another value.
                edits.push(self.source.set(span, key, &new?)?);
            }
        }
        Some(edits)
    }

    fn list(&self) -> Option<Vec<Edit>> {
        let items: Vec<String> = self.new.backends.iter().map(item).collect();
        Some(vec![self.source.replace_list(self.spans, &items)?])
    }
}

/// Values of a backend's keys, in the order in which they are added.
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

/// A backend on one line, without values that are the default.
fn item(backend: &Backend) -> String {
    let defaults = values(&Backend::new("", backend.address));
    let mut text =
        format!("{{ id: {}, address: {}", Quoted(&backend.id), Quoted(&backend.address.to_string()));
    for ((key, value), _) in
        values(backend).into_iter().zip(defaults).filter(|(value, default)| value != default)
    {
        text += &format!(", {key}: {}", value.expect("invariant: only the default of `zone` has no value"));
    }
    text + " }"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_between_folders() {
        for (from, to, expected) in
            [("/a/b", "/a/b/c", ".."), ("/a/b", "/a", "b"), ("/a/b", "/x/y", "../../a/b"), ("/a", "/a", "")]
        {
            assert_eq!(
                relative_path(Path::new(from), Path::new(to)).unwrap(),
                Path::new(expected),
                "{from} {to}"
            );
        }
    }
}
