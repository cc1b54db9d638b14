//! Reports this host's state to the fleet: its loaded models, and the models that it can serve.
//!
//! The file also builds the overview of the fleet for displays, and the fleet's metrics.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::MemoryModel;
use plimsoll_fleet::{FleetEvent, RunPhase};
use plimsoll_scheduler::{ModelId, ModelState, SchedulerEffect};
use serde_json::{Value, json};

use super::{FleetMember, offers};
use plimsoll_route::{Exposition, MetricKind, ModelService};
use plimsoll_runtime::{Extension, Runtime};
use plimsoll_task::spawn_local;

/// Hosts that displays show: a page of more is read by nobody, and each event of the status stream carries
/// them.
const MOST_SHOWN: usize = 64;

impl FleetMember {
    fn notify_offers(&self) {
        let list = self.offers.borrow().clone();
        self.submit(FleetEvent::Offers { digest: offers::digest(&list), list });
    }

    /// Reports new offers together, without the models that a new configuration leaves out.
    pub(super) fn revise_offers(&self, runtime: &Runtime) {
        let mut offers = self.offers.borrow_mut();
        let before = offers.models.len();
        offers.models.retain(|name, _| runtime.resolve(name).is_some());
        let is_less = offers.models.len() < before;
        drop(offers);
        self.notify_replicas(runtime);
        self.notify_copies(|name| runtime.resolve(name).is_some());
        if self.offers_changed.take() || is_less {
            self.notify_offers();
        }
    }

    /// The fleet as this host knows it, for displays: hosts with their memory, and where each model lies.
    fn overview(&self) -> Value {
        let node = self.node.borrow();
        let view = &node.view;
        let hosts = view.hosts.iter().take(MOST_SHOWN).map(|(name, host)| {
            let host = &host.record.body;
            let drain = view
                .drains
                .get(name)
                .map(|drain| if drain.record.body.leave { "drains" } else { "cordoned" });
            let models = view
                .seats_on(name, &host.incarnation)
                .map(|(model, _, seat)| json!({ "model": model, "need": seat.need }));
            json!({
                "name": name, "address": host.address, "version": host.version, "capacity": host.capacity,
                "free": view.free(name, host), "drain": drain, "models": models.collect::<Vec<_>>(),
            })
        });
        json!({
            "host": self.name.to_str().unwrap_or_default(), "store_answers": node.store_answers(),
            "certificates": self.trust.certificates().is_some(), "passed_on": self.passed_on.get(),
            "hosts": hosts.collect::<Vec<_>>(), "more": view.hosts.len().saturating_sub(MOST_SHOWN),
        })
    }

    /// Reports which models several hosts may serve, if that has changed.
    fn notify_replicas(&self, runtime: &Runtime) {
        let entries = runtime.models().into_iter().map(|model| runtime.state.entry(model));
        let several = entries.filter_map(|entry| {
            let most = entry.replicas.filter(|most| *most > 1)?;
            Some((entry.name.clone(), most))
        });
        let replicas: BTreeMap<String, u32> = several.collect();
        if *self.replicas.borrow() != replicas {
            self.replicas.replace(replicas.clone());
            self.submit(FleetEvent::Replicas(replicas));
        }
    }

    /// Reports to the node a model's run.
    pub(super) fn notify_run(&self, runtime: &Runtime, model: ModelId, state: ModelState, idle: bool) {
        let name = runtime.state.entry(model).name.clone();
        let need = self.offers.borrow().models.get(&name).map(|offer| offer.need).unwrap_or_default();
        let run = match state {
            ModelState::Queued => return,
            ModelState::Unloaded | ModelState::Failed => None,
            ModelState::Loading => Some((RunPhase::Loading, need)),
            ModelState::Ready | ModelState::Draining | ModelState::Stopping => Some((RunPhase::Ready, need)),
        };
        self.submit(FleetEvent::Run { model: name, run, idle: idle && state == ModelState::Ready });
    }
}

impl Extension for FleetMember {
    fn start(self: Rc<Self>, runtime: &Rc<Runtime>) {
        // Set once, before anything is submitted.
        let _ = self.runtime.set(Rc::downgrade(runtime));
        let _ = self.me.set(Rc::downgrade(&self));
        spawn_local(Rc::clone(&self).keep_lease());
        spawn_local(Rc::clone(&self).follow_news());
        spawn_local(Rc::clone(&self).keep_certificate());
        spawn_local(self.tick());
    }

    fn on_effect(&self, runtime: &Rc<Runtime>, effect: &SchedulerEffect) {
        if let SchedulerEffect::StateChanged { model, state } = effect {
            self.notify_run(runtime, *model, *state, false);
        }
    }

    fn foreseen(&self, model: ModelId, demand: Option<&Arc<dyn MemoryModel>>) {
        let Some(runtime) = self.runtime() else { return };
        let entry = runtime.state.entry(model);
        let offer = demand.and_then(|demand| offers::offer(&entry, demand.as_ref(), &self.cards));
        if let Some(files) = &self.files {
            files.note(&entry, offer.is_some());
        }
        let mut offers = self.offers.borrow_mut();
        match offer {
            Some(offer) => drop(offers.models.insert(entry.name.clone(), offer)),
            None => drop(offers.models.remove(&entry.name)),
        }
        self.offers_changed.set(true);
    }

    fn add_to_document(&self, document: &mut Value) {
        document["fleet"] = self.overview();
    }

    fn write_metrics(&self, _: &Runtime, page: &mut Exposition) {
        let node = self.node.borrow();
        let mut family = |name, kind, help, value: u64| {
            page.family(name, kind, help);
            page.sample(name, &[], value);
        };
        let hosts = u64::try_from(node.view.hosts.len()).unwrap_or(u64::MAX);
        family(
            "plimsoll_fleet_hosts",
            MetricKind::Gauge,
            "Hosts that are registered in the fleet's store",
            hosts,
        );
        let answers = u64::from(node.store_answers());
        family(
            "plimsoll_fleet_store_answers",
            MetricKind::Gauge,
            "1 while the fleet's store answers",
            answers,
        );
        let help = "Requests that were passed on to other hosts of the fleet";
        family("plimsoll_fleet_passed_on_total", MetricKind::Counter, help, self.passed_on.get());
        let help = "Connections and requests that were refused because no host of the fleet sent them";
        family("plimsoll_fleet_refused_total", MetricKind::Counter, help, self.refused.borrow().count);
        if let Some(files) = &self.files {
            let (given, copied) = files.totals();
            let help = "Bytes of model files that other hosts of the fleet got from this one";
            family("plimsoll_fleet_given_bytes_total", MetricKind::Counter, help, given);
            let help = "Bytes of model files that came from other hosts of the fleet";
            family("plimsoll_fleet_copied_bytes_total", MetricKind::Counter, help, copied);
        }
    }
}
