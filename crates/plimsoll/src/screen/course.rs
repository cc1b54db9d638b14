//! A replay as a picture: for each policy what is live as an area, and what is reserved as a line above it.
//!
//! DECISION: each policy has a panel with a scale of its own, because what one strands would make the others flat; the
//! figures at its right say how they compare. Shapes and words tell the two apart, not only colours, and a viewer in
//! dark mode gets its own.

use std::fmt::{self, Write};

use plimsoll_base::Bytes;
use plimsoll_pool::replay::Sample;

use super::svg::escaped;
use crate::replay::{Replay, Replayed};

const MARGIN: u64 = 24;
/// From the left edge to the panels: room for the scale.
const LEFT: u64 = 92;
const WIDTH: u64 = 560;
const HEIGHT: u64 = 96;
const RIGHT: u64 = 190;
/// Height of a panel with its title.
const ROW: u64 = HEIGHT + 46;
const TOP: u64 = 64;

const STYLE: &str = "<style>\
.paper{fill:#ffffff}.panel{fill:#f6f7f8;stroke:#9aa0a6}.ink{fill:#202124}.faint{fill:#5f6368}\
.live{fill:#4f9d8f;fill-opacity:.55}.reserved{fill:none;stroke:#1f4e79;stroke-width:2}\
.budget{stroke:#b3261e;stroke-width:1.5;stroke-dasharray:6 4}.stop{stroke:#b3261e;stroke-width:2.5}.tick{stroke:#9aa0a6}\
@media (prefers-color-scheme:dark){.paper{fill:#16181b}.panel{fill:#202327;stroke:#7d838a}.ink{fill:#e8eaed}\
.faint{fill:#aab0b6}.live{fill:#5fb8a8}.reserved{stroke:#8ab8ea}.budget,.stop{stroke:#f28b82}}\
</style>";

/// The picture as SVG.
pub(crate) fn course(replay: &Replay) -> String {
    let mut text = String::new();
    // writing to a string cannot fail
    let _ = write(replay, &mut text);
    text
}

fn write(replay: &Replay, out: &mut String) -> fmt::Result {
    let rows = u64::try_from(replay.policies.len()).unwrap_or(u64::MAX);
    let height = rows.saturating_mul(ROW).saturating_add(TOP + 34);
    let width = LEFT + WIDTH + RIGHT + MARGIN;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', sans-serif" font-size="13">"#
    )?;
    writeln!(
        out,
        r#"{STYLE}<rect class="paper" width="{width}" height="{height}"/>"#
    )?;
    let title = format!(
        "live and reserved over {} requests; peak live {}",
        replay.steps, replay.peak_live
    );
    writeln!(
        out,
        r#"<text class="ink" x="{MARGIN}" y="34" font-size="16" font-weight="600">{}</text>"#,
        escaped(&title)
    )?;
    for (policy, row) in replay.policies.iter().zip(0_u64..) {
        Panel::new(replay, policy, TOP + row * ROW).write(out)?;
    }
    let (end, baseline) = (LEFT + WIDTH, height - 16);
    writeln!(
        out,
        r#"<text class="faint" x="{LEFT}" y="{baseline}">first request</text><text class="faint" x="{end}" y="{baseline}" text-anchor="end">last request</text>"#
    )?;
    writeln!(out, "</svg>")
}

/// The panel of one policy.
struct Panel<'a> {
    replay: &'a Replay,
    policy: &'a Replayed,
    /// Top and bottom of the plot.
    top: u64,
    bottom: u64,
    /// What its height stands for.
    full: Bytes,
}

impl<'a> Panel<'a> {
    fn new(replay: &'a Replay, policy: &'a Replayed, top: u64) -> Self {
        let highest = policy.peak_reserved.max(policy.peak_live());
        Self {
            replay,
            policy,
            top: top + 14,
            bottom: top + 14 + HEIGHT,
            full: highest + highest.scaled(1, 12),
        }
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let Self { top, bottom, .. } = self;
        let title = top - 7;
        writeln!(
            out,
            r#"<text class="ink" x="{LEFT}" y="{title}" font-weight="600">{}</text>"#,
            self.policy.policy
        )?;
        writeln!(
            out,
            r#"<rect class="panel" x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}"/>"#
        )?;
        self.write_scale(out)?;
        let live = self.steps(|sample| sample.live);
        let end = self.x(self.last_step());
        writeln!(
            out,
            r#"<path class="live" d="M{LEFT} {bottom}{live}V{bottom}H{LEFT}Z"><title>live</title></path>"#
        )?;
        let reserved = self.steps(|sample| sample.reserved);
        writeln!(
            out,
            r#"<path class="reserved" d="M{LEFT} {bottom}{reserved}"><title>reserved</title></path>"#
        )?;
        self.write_budget(out)?;
        if !self.policy.completed {
            self.write_stop(end, out)?;
        }
        self.write_key(out)
    }

    fn write_scale(&self, out: &mut String) -> fmt::Result {
        let x = LEFT - 8;
        for bytes in [self.policy.peak_reserved, Bytes::ZERO] {
            let y = self.y(bytes);
            let (left, baseline) = (LEFT - 5, y + 4);
            writeln!(
                out,
                r#"<path class="tick" d="M{left} {y}H{LEFT}"/><text class="faint" x="{x}" y="{baseline}" text-anchor="end" font-size="12">{bytes}</text>"#
            )?;
        }
        Ok(())
    }

    fn write_budget(&self, out: &mut String) -> fmt::Result {
        let Some(budget) = self.replay.budget.filter(|&budget| budget <= self.full) else {
            return Ok(());
        };
        let (y, end) = (self.y(budget), LEFT + WIDTH);
        let (label, x) = (y + 13, LEFT + 6);
        writeln!(
            out,
            r#"<path class="budget" d="M{LEFT} {y}H{end}"/><text class="ink" x="{x}" y="{label}" font-size="11">budget {budget}</text>"#
        )
    }

    /// A cross where the program dies.
    fn write_stop(&self, x: u64, out: &mut String) -> fmt::Result {
        let y = self.y(self.policy.peak_reserved);
        let (left, right, above, below) = (x - 6, x + 6, y.saturating_sub(6), y + 6);
        writeln!(
            out,
            r#"<path class="stop" d="M{left} {above}L{right} {below}M{left} {below}L{right} {above}"/>"#
        )
    }

    /// What is drawn how, with the figures.
    fn write_key(&self, out: &mut String) -> fmt::Result {
        let (mark, text) = (LEFT + WIDTH + 14, LEFT + WIDTH + 42);
        let lines = [24, 46, 68, 90].map(|down| self.top + down);
        let end = mark + 20;
        let (line, area) = (lines[0] - 4, lines[1] - 11);
        writeln!(
            out,
            r#"<path class="reserved" d="M{mark} {line}H{end}"/><rect class="live" x="{mark}" y="{area}" width="20" height="12"/>"#
        )?;
        let policy = self.policy;
        let verdict = match policy.failure {
            None => format!("{} driver calls", policy.driver_allocs),
            Some(_) => "× does not complete".to_owned(),
        };
        let words = [
            format!("reserved {}", policy.peak_reserved),
            format!("live {}", policy.peak_live()),
            format!("{:.2} × peak live", policy.ratio),
            verdict,
        ];
        for (y, words) in lines.into_iter().zip(words) {
            writeln!(out, r#"<text class="ink" x="{text}" y="{y}">{words}</text>"#)?;
        }
        Ok(())
    }

    /// A line of steps through the peaks of all parts; parts of the same height are one stroke.
    fn steps(&self, value: impl Fn(&Sample) -> u64) -> String {
        let mut path = String::new();
        let (mut height, mut end) = (self.bottom, LEFT);
        // writing to a string cannot fail
        for sample in &self.policy.outcome.samples {
            let y = self.y(Bytes::new(value(sample)));
            if y != height {
                let _ = write!(path, "H{end}V{y}");
                height = y;
            }
            end = self.x(sample.step);
        }
        let _ = write!(path, "H{end}");
        path
    }

    fn last_step(&self) -> usize {
        self.policy.outcome.samples.last().map_or(0, |sample| sample.step)
    }

    fn x(&self, step: usize) -> u64 {
        let (step, steps) = (u64::try_from(step + 1), u64::try_from(self.replay.steps));
        let along = Bytes::new(WIDTH).scaled(step.unwrap_or_default(), steps.unwrap_or_default().max(1));
        LEFT + along.get().min(WIDTH)
    }

    fn y(&self, bytes: Bytes) -> u64 {
        let up = bytes.scaled(HEIGHT, self.full.get().max(1)).get().min(HEIGHT);
        self.bottom - up
    }
}
