//! Stores the measured memory of engines that the planner does not know, across restarts of the daemon.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bytes, DeclaredSize, MemoryModel};
use plimsoll_config::ConfiguredModel;
use serde::{Deserialize, Serialize};

use super::state_file::StateFile;
use super::survey::named::OnNamed;

const SCHEMA: &str = "plimsoll.needs/1";
/// More engines are in no configuration.
const MOST: usize = 4096;
/// A measurement that passes the last one by less is not written, so that a growing engine costs few writes.
const STEP: Bytes = Bytes::mib(64);

#[derive(Debug, Serialize, Deserialize)]
struct NeedFile {
    schema: String,
    /// Bytes by model and command.
    needs: BTreeMap<String, u64>,
}

/// Bytes by model and command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNeeds(BTreeMap<String, u64>);

/// Needs that were measured, and their file.
#[derive(Debug, Default)]
pub struct MeasuredNeeds {
    file: StateFile,
    known: RefCell<Arc<KnownNeeds>>,
}

impl KnownNeeds {
    /// The measured need in place of an unknown one.
    pub(super) fn instead(
        &self,
        entry: &ConfiguredModel,
        demand: Arc<dyn MemoryModel>,
    ) -> Arc<dyn MemoryModel> {
        match demand.alone().then(|| self.0.get(&key(entry))).flatten() {
            Some(bytes) => {
                OnNamed::around(demand.named().clone(), Arc::new(DeclaredSize(Bytes::new(*bytes))))
            }
            None => demand,
        }
    }
}

impl MeasuredNeeds {
    /// The needs that earlier daemons measured; a file that is damaged, or that others may write, holds none.
    pub fn of(configuration: &Path) -> Self {
        Self::in_file(StateFile::of(configuration, "needs"))
    }

    fn in_file(file: StateFile) -> Self {
        let read = serde_json::from_slice(&file.read()).ok();
        let read = read.filter(|file: &NeedFile| file.schema == SCHEMA && file.needs.len() <= MOST);
        let known = KnownNeeds(read.map(|file| file.needs).unwrap_or_default());
        Self { known: RefCell::new(Arc::new(known)), file }
    }

    pub fn known(&self) -> Arc<KnownNeeds> {
        Arc::clone(&self.known.borrow())
    }

    /// Takes a measurement of a model that had a card to itself, or whose need is known from here. Returns
    /// what is to be written to the file.
    pub(super) fn measured(
        &self,
        entry: &ConfiguredModel,
        alone: bool,
        need: Bytes,
    ) -> Option<(StateFile, Vec<u8>)> {
        let key = key(entry);
        let mut known = self.known.borrow_mut();
        let last = known.0.get(&key).map(|bytes| Bytes::new(*bytes));
        let grew = last.map_or(alone && !need.is_zero(), |last| need >= last + STEP);
        if !grew || (last.is_none() && known.0.len() >= MOST) {
            return None;
        }
        let needs = &mut Arc::make_mut(&mut known).0;
        needs.insert(key, need.get());
        let file = NeedFile { schema: SCHEMA.to_owned(), needs: needs.clone() };
        Some((self.file.clone(), serde_json::to_vec(&file).ok()?))
    }
}

/// Another command, environment or choice of cards is another engine.
fn key(entry: &ConfiguredModel) -> String {
    let mut hasher = DefaultHasher::new();
    format!("{:?} {:?} {:?}", entry.launch, entry.env, entry.cards).hash(&mut hasher);
    format!("{} {:016x}", entry.name, hasher.finish())
}

#[cfg(test)]
mod tests {
    use plimsoll_base::UnknownSize;

    use super::*;

    fn entry(text: &str) -> ConfiguredModel {
        let text = format!("[models.a]\n{text}\n");
        plimsoll_config::parse("x.toml", &text, &|_| None).unwrap().models.remove(0)
    }

    fn known(needs: &MeasuredNeeds, entry: &ConfiguredModel) -> Option<Bytes> {
        let demand = needs.known().instead(entry, Arc::new(UnknownSize));
        let card = "name=a,total=100GiB,cc=9.0".parse().unwrap();
        (!demand.alone()).then(|| demand.on(&[card]).unwrap()[0].1)
    }

    #[test]
    fn a_need_is_kept_for_its_command_and_follows_what_grows() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::at(folder.path().join("needs.json"));
        let open = || MeasuredNeeds::in_file(file.clone());
        let write = |needs: &MeasuredNeeds, alone, bytes| {
            let (file, text) = needs.measured(&entry("cmd = 'x ${PORT}'"), alone, bytes)?;
            file.write(&text).unwrap();
            Some(())
        };
        let needs = open();
        assert!(write(&needs, false, Bytes::gib(3)).is_none(), "its need is planned or declared");
        assert!(write(&needs, true, Bytes::ZERO).is_none());
        assert!(write(&needs, true, Bytes::gib(3)).is_some());
        assert!(write(&needs, true, Bytes::gib(3) + Bytes::mib(63)).is_none());
        assert!(write(&needs, true, Bytes::gib(2)).is_none(), "it never needs less");
        let later = open();
        assert_eq!(known(&later, &entry("cmd = 'x ${PORT}'\nttl = '5m'")), Some(Bytes::gib(3)));
        for other in
            ["cmd = 'y ${PORT}'", "cmd = 'x ${PORT}'\nenv = { A = 'b' }", "cmd = 'x ${PORT}'\ncards = ['c']"]
        {
            assert_eq!(known(&later, &entry(other)), None, "{other}");
        }
        assert!(write(&later, false, Bytes::gib(4)).is_some(), "it has grown, beside others this time");
        assert_eq!(known(&open(), &entry("cmd = 'x ${PORT}'")), Some(Bytes::gib(4)));
    }

    #[test]
    fn a_damaged_file_holds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::at(folder.path().join("needs.json"));
        let many: Vec<String> = (0..=MOST).map(|n| format!("\"{n}\":1")).collect();
        let many = format!("{{\"schema\":\"{SCHEMA}\",\"needs\":{{{}}}}}", many.join(","));
        let negative = format!("{{\"schema\":\"{SCHEMA}\",\"needs\":{{\"a\":-1}}}}");
        for hostile in ["", "[]", "{\"schema\":\"plimsoll.needs/2\",\"needs\":{}}", &negative, &many] {
            file.write(hostile.as_bytes()).unwrap();
            assert!(MeasuredNeeds::in_file(file.clone()).known().0.is_empty(), "{hostile:.60}");
        }
    }
}
