//! Format of fleet news: the store's records and changes, as one daemon sends them to another.
//!
//! The news consists of lines of JSON: first all records, then each change of the store.

use serde::{Deserialize, Serialize};

use super::keys::KeySpace;
use super::view::{FleetView, StoreChange};

/// Records in one line, so that no line is long.
const TOGETHER: usize = 256;

/// One line of the news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewsLine {
    /// The first: where the store was, and how many lines of records follow.
    Begin { cluster: u64, term: u64, revision: u64, depth: u32, lines: usize },
    /// Records, or changes of one or more revisions.
    Changes(Vec<ToldChange>),
    /// The store has answered the source a moment ago, at this revision.
    Beat { revision: u64, depth: u32 },
}

/// A change as it is told: the key as in the store, and the value, which is a text there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldChange {
    key: String,
    revision: u64,
    value: Option<String>,
}

impl NewsLine {
    /// `None` for anything that is no such line.
    pub fn read(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// With the end of the line.
    pub fn write(&self) -> Vec<u8> {
        // Numbers and texts: nothing in it can fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    pub fn changes(keys: &KeySpace, changes: &[StoreChange]) -> Self {
        let told = changes.iter().map(|change| ToldChange {
            key: keys.text(&change.key),
            revision: change.revision,
            // What is no text can be read by no version, and is told as such a value.
            value: change.value.clone().map(|value| String::from_utf8(value).unwrap_or_default()),
        });
        Self::Changes(told.collect())
    }

    /// All of a view, as lines.
    pub fn all(keys: &KeySpace, view: &FleetView, cluster: u64, term: u64, depth: u32) -> Vec<u8> {
        let records: Vec<StoreChange> = view.records().collect();
        let lines = records.chunks(TOGETHER).map(|records| Self::changes(keys, records).write());
        let lines: Vec<Vec<u8>> = lines.collect();
        let begin = Self::Begin { cluster, term, revision: view.revision, depth, lines: lines.len() };
        let mut all = begin.write();
        lines.iter().for_each(|line| all.extend_from_slice(line));
        all
    }
}

impl ToldChange {
    /// `None` for a key that is none of the fleet's.
    pub fn change(self, keys: &KeySpace) -> Option<StoreChange> {
        let key = keys.read(&self.key)?;
        Some(StoreChange { key, revision: self.revision, value: self.value.map(String::into_bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::FleetKey;
    use crate::records::{Drain, Record};

    fn keys() -> KeySpace {
        KeySpace::of("lab").unwrap()
    }

    fn change(host: usize, value: Option<Vec<u8>>) -> StoreChange {
        StoreChange { key: FleetKey::Drain(format!("h{host}")), revision: host as u64, value }
    }

    /// What another daemon has of the lines.
    fn told(lines: &[u8]) -> (u64, Vec<StoreChange>) {
        let mut lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let first = NewsLine::read(lines.next().unwrap()).unwrap();
        let NewsLine::Begin { revision, lines: count, .. } = first else { panic!("{first:?}") };
        let read = lines.clone().map(|line| match NewsLine::read(line) {
            Some(NewsLine::Changes(changes)) => changes,
            other => panic!("{other:?}"),
        });
        assert_eq!(read.clone().count(), count);
        (revision, read.flatten().filter_map(|told| told.change(&keys())).collect())
    }

    #[test]
    fn a_view_is_the_same_at_another_daemon() {
        let mut later = Record::new(Drain { leave: true });
        later.schema = 9;
        later.unknown.insert("until".to_owned(), 5.into());
        let mut records: Vec<StoreChange> = (1..700)
            .map(|host| change(host, Some(Record::new(Drain { leave: host % 2 == 0 }).write())))
            .collect();
        records.push(change(700, Some(later.write())));
        records.push(change(701, Some(b"\xff no record".to_vec())));
        let view = FleetView::at(900, records);
        let (revision, records) = told(&NewsLine::all(&keys(), &view, 1, 2, 0));
        let there = FleetView::at(revision, records);
        assert_eq!((there.revision, &there.drains, &there.unreadable), (900, &view.drains, &view.unreadable));
        assert!(there.drains("h701"), "what cannot be read is left alone there too");
    }

    #[test]
    fn what_is_no_line_is_none() {
        let deep = format!("{{\"changes\":{}", "[".repeat(100_000));
        let lines: [&[u8]; 7] = [
            b"",
            b"{}",
            b"[]",
            b"\xff",
            b"{\"begin\":{\"revision\":-1}}",
            b"{\"beat\":{\"revision\":1,\"depth\":1},\"changes\":[]}",
            deep.as_bytes(),
        ];
        lines
            .iter()
            .for_each(|line| assert_eq!(NewsLine::read(line), None, "{}", String::from_utf8_lossy(line)));
        let foreign = ToldChange { key: "/plimsoll/other/1/hosts/a".to_owned(), revision: 1, value: None };
        assert_eq!(foreign.change(&keys()), None);
        let beat = NewsLine::Beat { revision: u64::MAX, depth: 3 };
        assert_eq!(NewsLine::read(beat.write().trim_ascii_end()), Some(beat));
    }
}
