//! Encodes the records of the fleet's store, and their changes, as one daemon sends them to another.
//!
//! The news consists of lines of JSON: first all records, then each change of the store.

use serde::{Deserialize, Serialize};

use super::keys::KeySpace;
use super::view::{FleetView, StoreChange};

/// Records and bytes of values in one line, so that no line is long. A record alone may be longer.
const TOGETHER: usize = 256;
const LONG: usize = 1 << 20;
/// Replacement for a value that no version can read, because it is not UTF-8.
const UNREADABLE: &str = "";

/// One line of the news.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NewsLine {
    /// The first: where the store was, and how many lines of records follow.
    Begin { cluster: u64, term: u64, revision: u64, depth: u32, lines: usize },
    /// Records, or changes of one or more revisions.
    Changes(Vec<ReportedChange>),
    /// The store has answered the source a moment ago, at this revision.
    Beat { revision: u64, depth: u32 },
}

/// A change in the news: the key as in the store, and the value, which is a text there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedChange {
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

    /// Changes in their order, as lines.
    pub fn changes<'a>(
        keys: &'a KeySpace,
        changes: &'a [StoreChange],
    ) -> impl Iterator<Item = Self> + use<'a> {
        let reported = |change: &StoreChange| ReportedChange {
            key: keys.text(&change.key),
            revision: change.revision,
            value: change
                .value
                .as_deref()
                .map(|value| str::from_utf8(value).unwrap_or(UNREADABLE).to_owned()),
        };
        let size = |change: &StoreChange| change.value.as_ref().map_or(0, Vec::len);
        let mut left = changes;
        std::iter::from_fn(move || {
            let mut bytes = 0_usize;
            let fits = left.iter().take(TOGETHER).take_while(|change| {
                let is_first = bytes == 0;
                bytes = bytes.saturating_add(size(change));
                is_first || bytes <= LONG
            });
            let count = fits.count();
            let (line, rest) = left.split_at(count);
            left = rest;
            (count > 0).then(|| Self::Changes(line.iter().map(reported).collect()))
        })
    }

    /// Keys of changes whose values are no text. Other hosts learn that such a record exists, and not its
    /// content.
    pub fn unreadable(keys: &KeySpace, changes: &[StoreChange]) -> Vec<String> {
        let is_text = |value: &[u8]| str::from_utf8(value).is_ok();
        let broken = changes.iter().filter(|change| !change.value.as_deref().is_none_or(is_text));
        broken.map(|change| keys.text(&change.key)).collect()
    }

    /// All of a view, as lines.
    pub fn all(keys: &KeySpace, view: &FleetView, cluster: u64, term: u64, depth: u32) -> Vec<u8> {
        let records: Vec<StoreChange> = view.records().collect();
        let lines: Vec<Vec<u8>> = Self::changes(keys, &records).map(|line| line.write()).collect();
        let begin = Self::Begin { cluster, term, revision: view.revision, depth, lines: lines.len() };
        let mut all = begin.write();
        lines.iter().for_each(|line| all.extend_from_slice(line));
        all
    }
}

impl ReportedChange {
    /// `None` for a key outside of the fleet.
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

    /// The lines as another daemon has them.
    fn reported(lines: &[u8]) -> (u64, Vec<StoreChange>) {
        let mut lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let first = NewsLine::read(lines.next().unwrap()).unwrap();
        let NewsLine::Begin { revision, lines: count, .. } = first else { panic!("{first:?}") };
        let read = lines.clone().map(|line| match NewsLine::read(line) {
            Some(NewsLine::Changes(changes)) => changes,
            other => panic!("{other:?}"),
        });
        assert_eq!(read.clone().count(), count);
        (revision, read.flatten().filter_map(|reported| reported.change(&keys())).collect())
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
        let (revision, records) = reported(&NewsLine::all(&keys(), &view, 1, 2, 0));
        let there = FleetView::at(revision, records);
        assert_eq!((there.revision, &there.drains, &there.unreadable), (900, &view.drains, &view.unreadable));
        assert!(there.drains("h701"), "what cannot be read is left alone there too");
    }

    #[test]
    fn a_line_has_a_bounded_number_of_records_and_of_bytes() {
        let of = |changes: &[StoreChange]| -> Vec<usize> {
            let keys = keys();
            let lines = NewsLine::changes(&keys, changes).map(|line| match line {
                NewsLine::Changes(changes) => changes.len(),
                other => panic!("{other:?}"),
            });
            lines.collect()
        };
        let long = |bytes: usize| move |host: usize| change(host, Some(vec![b'x'; bytes]));
        assert!(of(&[]).is_empty());
        assert_eq!(of(&(0..600).map(|host| change(host, None)).collect::<Vec<_>>()), [256, 256, 88]);
        assert_eq!(of(&(0..7).map(long(LONG / 3)).collect::<Vec<_>>()), [3, 3, 1]);
        assert_eq!(of(&(0..3).map(long(2 * LONG)).collect::<Vec<_>>()), [1, 1, 1], "each goes, alone");
    }

    #[test]
    fn a_value_that_is_no_text_is_named_and_reported_as_one_that_cannot_be_read() {
        let changes = [change(1, Some(b"\xff".to_vec())), change(2, Some(b"{}".to_vec())), change(3, None)];
        assert_eq!(NewsLine::unreadable(&keys(), &changes), ["/plimsoll/lab/1/drains/h1"]);
        let mut view = FleetView::default();
        let keys = keys();
        for line in NewsLine::changes(&keys, &changes) {
            let NewsLine::Changes(reported) = line else { panic!("{line:?}") };
            reported
                .into_iter()
                .filter_map(|reported| reported.change(&keys))
                .for_each(|change| view.apply(&change));
        }
        assert!(view.drains("h1"), "it is there, and its content is in doubt");
    }

    #[test]
    fn malformed_news_lines_read_as_none() {
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
        let foreign =
            ReportedChange { key: "/plimsoll/other/1/hosts/a".to_owned(), revision: 1, value: None };
        assert_eq!(foreign.change(&keys()), None);
        let beat = NewsLine::Beat { revision: u64::MAX, depth: 3 };
        assert_eq!(NewsLine::read(beat.write().trim_ascii_end()), Some(beat));
    }
}
