//! Chart of a replayed allocation trace: live and reserved memory of each allocator policy.

use plimsoll_base::Bytes;
use plimsoll_pool::replay::Sample;
use plimsoll_report::{Chart, ChartSeries, ChartShape, KeyRow, charts, steps};

use crate::replay::{Replay, Replayed};

/// Height of a policy's plot: eight of them fit a screen.
const HEIGHT: u64 = 96;

/// Draws a replay as a standalone SVG document.
pub(crate) fn course(replay: &Replay) -> String {
    let title = format!(
        "live and reserved memory over {} requests; at most {} were live",
        replay.steps, replay.peak_live
    );
    let policies: Vec<Chart> = replay.policies.iter().map(|policy| chart(replay, policy)).collect();
    charts(Some(&title), &policies)
}

fn chart(replay: &Replay, policy: &Replayed) -> Chart {
    // DECISION: each policy has its own scale, because the large unused memory of one would flatten the
    // others.
    let highest = policy.peak_reserved.max(policy.peak_live());
    // A twelfth of headroom keeps the highest line and its label off the frame.
    let full = highest + highest.scaled(1, 12);
    let points = |of: fn(&Sample) -> u64| {
        let samples = policy.outcome.samples.iter();
        // Memory changes in steps; a slanted line would show values that never existed.
        steps(samples.map(|sample| (u64::try_from(sample.step + 1).unwrap_or(u64::MAX), of(sample))))
    };
    let reserved = points(|sample| sample.reserved);
    // The last sample of a policy that stops is the request that it could not serve.
    let stop = reserved.last().filter(|_| !policy.completed);
    Chart {
        title: policy.policy.to_string(),
        height: HEIGHT,
        x: (0, u64::try_from(replay.steps).unwrap_or(u64::MAX).max(1)),
        y: (0, full.get()),
        x_ticks: vec![(0, "first request".to_owned()), (u64::MAX, "last request".to_owned())],
        y_ticks: [policy.peak_reserved, Bytes::ZERO].map(|bytes| (bytes.get(), bytes.to_string())).to_vec(),
        limits: replay.budget.iter().map(|budget| (budget.get(), format!("budget {budget}"))).collect(),
        marks: Vec::new(),
        stops: stop.map(|(step, _)| (*step, policy.peak_reserved.get())).into_iter().collect(),
        key: key(policy),
        series: vec![
            series("live", "live", ChartShape::Area, points(|sample| sample.live)),
            series("reserved", "line reserved", ChartShape::Line, reserved),
        ],
    }
}

fn series(name: &str, class: &str, shape: ChartShape, points: Vec<(u64, u64)>) -> ChartSeries {
    ChartSeries { name: name.to_owned(), class: class.to_owned(), shape, points, base: Vec::new() }
}

fn key(policy: &Replayed) -> Vec<KeyRow> {
    let verdict = match policy.failure {
        None => format!("{} driver calls", policy.driver_allocs),
        // The same sign marks the point in the plot, so the key needs no colour.
        Some(_) => "× does not complete".to_owned(),
    };
    let row = |swatch: Option<(&str, ChartShape)>, text: String| KeyRow {
        swatch: swatch.map(|(class, shape)| (class.to_owned(), shape)),
        text,
    };
    vec![
        row(Some(("line reserved", ChartShape::Line)), format!("reserved {}", policy.peak_reserved)),
        row(Some(("live", ChartShape::Area)), format!("live {}", policy.peak_live())),
        row(None, format!("{:.2} × peak live", policy.ratio)),
        row(None, verdict),
    ]
}
