//! `plimsoll plan --quants`: plans each quantisation that a model repository offers.

use std::process::ExitCode;

use plimsoll_base::{Bytes, Card, Order};
use plimsoll_flags::{Options, RemoteSource};
use plimsoll_model::repository::Quantisation;
use plimsoll_plan::Models;
use plimsoll_planner::{CardPlan, Plan};
use plimsoll_report::aligned;
use serde_json::{Value, json};

use super::Arguments;
use super::remote::hub;
use crate::report::{ErrorReport, print_as, status};

/// One quantisation with its plan, or with the reason of its absence.
struct PlannedQuant {
    quantisation: Quantisation,
    plan: Result<Plan, ErrorReport>,
}

pub(super) fn run(arguments: &Arguments, options: &Options, cards: &[Card]) -> Result<ExitCode, ErrorReport> {
    let params = options.params(arguments.program())?;
    let Some(RemoteSource::Hub(named)) = &params.remote else {
        return Err(ErrorReport::new(
            "--quants needs the name of a repository\nhint: plimsoll plan -hf USER/REPO --quants",
        ));
    };
    let repo = named.split(':').next().unwrap_or_default();
    let hub = hub(options.text("--hf-token"), Some(arguments.header_limit))?;
    let listing = hub.listing(repo)?;
    let dialect = arguments.engine().kind.dialect();
    let (mut rows, mut projector, mut failed) = (Vec::new(), None, None);
    hub.each_quantisation(&listing, dialect, |quantisation, fetched| {
        if rows.is_empty() && params.projector_auto {
            // All quantisations of a repository share a projector, and its size hardly differs.
            let found = hub.projector(&listing, &quantisation, dialect);
            match found.and_then(|found| found.map(|found| found.model()).transpose()) {
                Ok(found) => projector = found,
                Err(error) => failed = Some(error),
            }
        }
        let models = fetched.and_then(|fetched| {
            Ok(Models { projector: projector.clone(), ..Models::from(fetched.model()?) })
        });
        let plan = models.map_err(ErrorReport::from).and_then(|models| {
            let estimate = plimsoll_probe::estimate(models, arguments.engine(), arguments.program());
            Ok(estimate.plan(options, cards)?)
        });
        rows.push(PlannedQuant { quantisation, plan });
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    if rows.is_empty() {
        return Err(ErrorReport::new(format!(
            "{repo} contains no GGUF file\nhint: look for a repository whose name ends in \
                -GGUF"
        )));
    }
    rows.order_by_key(PlannedQuant::rank);
    let document = json!({
        "schema": "plimsoll.quants/1",
        "repository": repo,
        "commit": listing.commit,
        "quantisations": rows.iter().map(PlannedQuant::json).collect::<Vec<Value>>(),
    });
    print_as(arguments.json.as_deref(), &document, || text(&rows, cards))?;
    Ok(status(rows.iter().any(PlannedQuant::fits)))
}

impl PlannedQuant {
    fn fits(&self) -> bool {
        self.plan.as_ref().is_ok_and(|plan| plan.fits)
    }

    /// Fitting quantisations come first, the largest in front; then the others, the smallest in front.
    fn rank(&self) -> (u8, u64) {
        let size = self.quantisation.size.unwrap_or(0);
        match &self.plan {
            Ok(plan) if plan.fits => (0, u64::MAX - size),
            Ok(_) => (1, size),
            Err(_) => (2, size),
        }
    }

    fn json(&self) -> Value {
        let Quantisation { name, files, size } = &self.quantisation;
        let mut value = json!({ "name": name, "files": files, "size": size, "fits": self.fits() });
        match &self.plan {
            Ok(plan) => {
                let card = |card: &CardPlan| json!({ "id": card.id, "peak": card.peak, "free": card.free, "fits": card.fits });
                value["cards"] = plan.cards.iter().map(card).collect();
                value["largest_context"] = json!(plan.largest_context);
            }
            Err(error) => value["error"] = json!(error.to_string()),
        }
        value
    }

    fn cells(&self, width: usize) -> Vec<String> {
        let size = self.quantisation.size.map_or("unknown".to_owned(), |size| Bytes::new(size).to_string());
        let mut cells = vec![self.quantisation.name.clone(), size];
        match &self.plan {
            Ok(plan) => {
                cells.extend(plan.cards.iter().map(|card| card.peak.to_string()));
                let tightest = plan.cards.iter().min_by_key(|card| card.headroom);
                cells.push(tightest.map(plimsoll_site::verdict).unwrap_or_default());
            }
            Err(error) => {
                cells.resize(width - 1, String::new());
                cells.push(error.to_string().lines().next().unwrap_or_default().to_owned());
            }
        }
        cells
    }
}

fn text(rows: &[PlannedQuant], cards: &[Card]) -> String {
    let mut table = vec![vec!["quantisation".to_owned(), "file".to_owned()]];
    table[0].extend(cards.iter().map(|card| card.id.to_string()));
    let width = table[0].len() + 1;
    table.extend(rows.iter().map(|row| row.cells(width)));
    aligned(&table)
}
