//! What no tensor tells of a graph: the order of sums, and where the rows that are wanted are picked.
//!
//! An architecture's graph follows from the tensors that it has, but for these few quirks, which
//! `src/models/*.cpp @ b10605` have each for itself.

use plimsoll_model::Model;

/// Where the rows whose logits are wanted are picked out of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedRows {
    /// Within the last layer, before its residual sum.
    WithinLastLayer,
    /// Within the last layer, after its first residual sum.
    AfterFirstSum,
    /// After the last layer.
    AfterLastLayer,
    /// After the last norm, whose rows are all kept: layers that predict further tokens read them.
    AfterLastNorm,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct GraphVariant {
    pub(super) wanted: WantedRows,
    /// Which of a layer's two sums name what goes around first, and so write over that.
    pub(super) residual_first: [bool; 2],
    /// A layer's norm is computed before anything else of the layer.
    pub(super) norm_first: bool,
    /// Attention and feed-forward read one norm, side by side.
    pub(super) side_by_side: bool,
    /// Norms subtract the mean, with a bias or without.
    pub(super) subtracts_mean: bool,
    /// The chosen experts' weights are divided by their sum.
    pub(super) weighs_experts: bool,
    /// Values are normed by no weight before they are cached.
    pub(super) norms_values: bool,
    /// The gates of attention's result are looked at in another shape, and so not written over.
    pub(super) views_gates: bool,
    /// The norm after the layers.
    pub(super) last_norm: &'static str,
    /// Positions of a token: 4 where images have a place in height and width.
    pub(super) positions: u64,
}

impl GraphVariant {
    pub(super) fn of(model: &Model) -> Self {
        let usual = Self {
            wanted: WantedRows::WithinLastLayer,
            residual_first: [false, false],
            norm_first: false,
            side_by_side: false,
            subtracts_mean: false,
            weighs_experts: true,
            norms_values: false,
            views_gates: false,
            last_norm: "output_norm.weight",
            positions: 1,
        };
        match model.architecture.as_str() {
            "gpt-oss" => Self {
                wanted: WantedRows::AfterLastLayer,
                ..usual
            },
            "qwen3next" => Self {
                wanted: WantedRows::AfterLastNorm,
                norm_first: true,
                ..usual
            },
            "qwen35" | "qwen35moe" => Self {
                wanted: WantedRows::AfterLastNorm,
                norm_first: true,
                positions: 4,
                ..usual
            },
            "nemotron_h" | "nemotron_h_moe" => Self {
                wanted: WantedRows::AfterLastNorm,
                ..usual
            },
            "falcon-h1" => Self {
                wanted: WantedRows::AfterFirstSum,
                ..usual
            },
            "gemma3n" => Self {
                norms_values: true,
                ..usual
            },
            "phi3" => Self {
                residual_first: [false, true],
                ..usual
            },
            "command-r" => Self {
                side_by_side: true,
                subtracts_mean: true,
                ..usual
            },
            "modern-bert" => Self {
                subtracts_mean: true,
                ..usual
            },
            "nomic-bert-moe" => Self {
                weighs_experts: false,
                ..usual
            },
            "jamba" => Self {
                residual_first: [true, true],
                weighs_experts: false,
                ..usual
            },
            "lfm2" | "lfm2moe" => Self {
                residual_first: [true, true],
                last_norm: "token_embd_norm.weight",
                ..usual
            },
            _ => usual,
        }
    }

    /// Before there were layers that predict further tokens from rows of their own, the wanted rows were picked within the last
    /// layer (`src/models/*.cpp @ b8799`).
    pub(super) fn of_older(model: &Model) -> Self {
        let variant = Self::of(model);
        let wanted = match variant.wanted {
            WantedRows::AfterLastLayer | WantedRows::AfterLastNorm => WantedRows::WithinLastLayer,
            WantedRows::WithinLastLayer | WantedRows::AfterFirstSum => variant.wanted,
        };
        Self {
            wanted,
            views_gates: model.architecture == "qwen3next",
            ..variant
        }
    }
}
