//! Copies a model's files from another host: fetches their list, then each missing file, part by part.
//!
//! A thread writes the files and asks this task for each part, so that the bytes use the fleet's connections.

use std::rc::Rc;
use std::time::Duration;

use http::HeaderValue;
use plimsoll_base::Order;
use plimsoll_config::ConfiguredModel;
use plimsoll_fleet::{FileDigest, RunningCopy};
use plimsoll_hub::{HostFault, HubError, HubFailure};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::ask::{PATIENCE, WantedPart, list, part_from};
use super::write::{CopyNews, matched, write};
use super::{FleetMember, SharedFiles, place};
use crate::offers;
use plimsoll_route::{FILES, HOP, MODEL, ModelService, Upstream};
use plimsoll_runtime::Runtime;
use plimsoll_task::{NoAnswer, spawn_blocking};

/// Longest wait for the turn of a part.
const TURN: Duration = Duration::from_secs(3600);
/// Hosts that are asked, one after the other.
const MOST_SOURCES: usize = 8;
/// A host that has the model's files.
#[derive(Clone, Debug)]
struct CopySource {
    host: String,
    address: String,
    digest: FileDigest,
}

impl FleetMember {
    /// Copies the files of a model from one host after the other, until one has given all.
    pub(super) async fn copy(self: Rc<Self>, model: String) {
        let (Some(files), Some(runtime)) = (&self.files, self.runtime()) else { return };
        let Some(id) = runtime.resolve(&model) else { return drop(files.copying.take()) };
        let entry = runtime.state.entry(id);
        let mut is_whole = false;
        for source in self.sources(&model) {
            let host = source.host.clone();
            files.copying.replace(Some(RunningCopy { model: model.clone(), from: host.clone(), percent: 0 }));
            self.notify_copy(files);
            match self.copy_from(files, &runtime, &entry, source).await {
                Ok(()) => {
                    tracing::info!("fleet: the files of model '{model}' were copied from host '{host}'");
                    is_whole = true;
                    break;
                }
                Err(error) => {
                    tracing::warn!(
                        "fleet: the files of model '{model}' could not be copied from host '{host}': {error}"
                    );
                }
            }
        }
        files.copying.take();
        runtime.end_copy(&model);
        if is_whole {
            Rc::clone(&runtime).foresee(vec![id]).await;
        } else {
            files.postpone(&model);
        }
        self.notify_copy(files);
    }

    /// Hosts with the model's files, each host's in an order of its own; none if they have different ones.
    fn sources(&self, model: &str) -> Vec<CopySource> {
        let (node, own) = (self.node.borrow(), self.name.to_str().unwrap_or_default());
        let hosts = node.view.hosts.iter().map(|(name, host)| (name, &host.record.body));
        let trusted = hosts.filter(|(name, host)| *name != own && node.view.trusts(name, host));
        let sources = trusted.filter_map(|(name, host)| {
            let digest = node.view.offer(host, model)?.file.clone()?;
            Some(CopySource { host: name.clone(), address: host.address.clone(), digest })
        });
        let mut sources: Vec<CopySource> = sources.collect();
        sources.order_by_key(|source| offers::fnv(format!("{own}\n{}", source.host).as_bytes()));
        if sources.iter().any(|source| Some(&source.digest) != sources.first().map(|first| &first.digest)) {
            tracing::warn!("fleet: hosts have different files for model '{model}', so none is copied");
            return Vec::new();
        }
        sources.truncate(MOST_SOURCES);
        sources
    }

    async fn copy_from(
        &self,
        files: &SharedFiles,
        runtime: &Rc<Runtime>,
        entry: &ConfiguredModel,
        source: CopySource,
    ) -> Result<(), HubError> {
        let of_host = |fault: HostFault| HubFailure::Host(fault).of(&source.host);
        // A name of a model may be any text; a header carries its bytes.
        let name = HeaderValue::from_bytes(entry.name.as_bytes());
        let name = name.map_err(|_| {
            of_host(HostFault::Refused("the model's name cannot be sent in an HTTP header".to_owned()))
        })?;
        let lines = vec![(HOP, HeaderValue::from_static(FILES)), (MODEL, name)];
        let peer = self.peer(&source.host, &source.address).with_lines(lines);
        let list = list(&peer, &source.digest).await.map_err(of_host)?;
        let copies = matched(place::places(entry), &list, &source.digest).map_err(of_host)?;
        let (ask, mut requested) = mpsc::channel(1);
        let (host, digest, part) = (source.host.clone(), source.digest.clone(), files.part());
        let total: u64 = copies.iter().map(|(_, copy)| copy.size()).sum();
        let work = spawn_blocking(move || write(&copies, &ask, &host, &digest, part));
        let mut before = 0;
        while let Some(news) = requested.recv().await {
            match news {
                CopyNews::Whole(size) => before += size,
                CopyNews::Part(wanted, answer) => {
                    runtime.show_copy(&entry.name, before + wanted.start, total);
                    self.notify_progress(files, before + wanted.start, total);
                    let answered = self.part_of(files, &peer, &wanted).await;
                    // An error means that the thread has ended.
                    let _ = answer.send(answered);
                }
            }
        }
        let broken = |error: NoAnswer| HubFailure::Broken(error.to_string()).of(&source.host);
        work.await.map_err(broken)?
    }

    /// Notes how far the copy is, and notifies the fleet of each tenth.
    fn notify_progress(&self, files: &SharedFiles, done: u64, total: u64) {
        let tenth = u128::from(done) * 10 / u128::from(total.max(1));
        let percent = u8::try_from(tenth.min(10) * 10).unwrap_or_default();
        let mut copying = files.copying.borrow_mut();
        if let Some(running) = copying.as_mut().filter(|running| running.percent != percent) {
            running.percent = percent;
            drop(copying);
            self.notify_copy(files);
        }
    }

    async fn part_of(
        &self,
        files: &SharedFiles,
        peer: &Upstream,
        wanted: &WantedPart,
    ) -> Result<Vec<u8>, HostFault> {
        if self.is_out() {
            return Err(HostFault::Refused("this host is not a member of the fleet any more".to_owned()));
        }
        if !files.taking.turn(wanted.length, TURN).await {
            return Err(HostFault::Silent(
                "other copies used all of the bandwidth (`share-bandwidth`)".to_owned(),
            ));
        }
        let silent = |_| Err(HostFault::Silent(format!("it sent nothing within {} s", PATIENCE.as_secs())));
        let bytes = timeout(PATIENCE, part_from(peer, wanted)).await.unwrap_or_else(silent)?;
        files.copied.set(files.copied.get().saturating_add(wanted.length));
        Ok(bytes)
    }
}
