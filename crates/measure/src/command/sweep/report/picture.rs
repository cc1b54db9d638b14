//! Draws memory and speed over the length of the prompt, for `plimsoll measure sweep`.

use plimsoll_base::{Bytes, round_u64};
use plimsoll_report::{Chart, RoundSteps, charts};

use super::SweepReport;
use crate::load::SweepDepth;

type Line = (String, Vec<(u64, u64)>);

impl SweepReport<'_> {
    pub(crate) fn svg(&self) -> String {
        let measured = self.sweep.curves().into_iter();
        let mut memory: Vec<Line> = measured
            .map(|(name, curve)| {
                (name.to_owned(), curve.iter().map(|(tokens, occupied)| (*tokens, occupied.get())).collect())
            })
            .collect();
        // Planned and measured share one chart, and so one scale. The plan starts at depth 0, the loaded
        // size.
        memory.extend(self.planned.map(|planned| {
            let depths = std::iter::once(0).chain(self.sweep.depths.iter().map(|depth| depth.tokens));
            ("planned".to_owned(), depths.map(|tokens| (tokens, planned.at(tokens).get())).collect())
        }));
        let bytes = |value: u64| Bytes::new(value).to_string();
        let rate = |value: u64| format!("{value} tokens/s");
        let chart = |what: &str, lines: &[Line], text: &dyn Fn(u64) -> String, steps| {
            Chart::of_points(&format!("{what} over depth"), lines, text, steps)
        };
        let drawn = [
            chart("memory", &memory, &bytes, RoundSteps::Binary),
            chart(
                "prompt speed",
                &[self.speed("prompt", |depth| depth.outcome.as_ref().ok()?.prompt)],
                &rate,
                RoundSteps::Decimal,
            ),
            chart(
                "answer speed",
                &[self.speed("answer", |depth| depth.outcome.as_ref().ok()?.answer)],
                &rate,
                RoundSteps::Decimal,
            ),
        ];
        let title = format!("{}: depth of the prompt in tokens", self.model);
        charts(&title, &drawn.into_iter().flatten().collect::<Vec<_>>())
    }

    fn speed(&self, name: &str, of: fn(&SweepDepth) -> Option<f64>) -> Line {
        let at = |depth: &SweepDepth| Some((depth.tokens, round_u64(of(depth)?)));
        (name.to_owned(), self.sweep.depths.iter().filter_map(at).collect())
    }
}
