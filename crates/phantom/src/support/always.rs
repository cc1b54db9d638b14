//! Operations that a card supports with any operands.

use crate::kinds::Op;

pub(super) fn is_always_taken(op: Op) -> bool {
    use Op::{
        Add1, AddId, Arange, Argmax, Argsort, Clamp, Cont, ConvTranspose2d, Cos, CountEqual,
        CrossEntropyLoss, CrossEntropyLossBack, Cumsum, Diag, DiagMaskInf, Fill, GatedDeltaNet,
        GatedLinearAttn, LeakyRelu, Log, None, OptStepAdamw, OptStepSgd, Pad, PadReflect1d, Permute, Pool2d,
        Reshape, RwkvWkv6, RwkvWkv7, Scale, Sin, SoftMax, SolveTri, Sqr, Sqrt, TimestepEmbedding, TopK,
        Transpose, Tri, Upscale, View,
    };
    // `None` and the four view operations compute nothing, but a refusal would split the graph there.
    matches!(
        op,
        None | Reshape
            | View
            | Permute
            | Transpose
            | AddId
            | Add1
            | Scale
            | Sqr
            | Sqrt
            | Sin
            | Cos
            | Clamp
            | Log
            | Cont
            | DiagMaskInf
            | SoftMax
            | ConvTranspose2d
            | Pool2d
            | TopK
            | Argsort
            | Pad
            | Upscale
            | PadReflect1d
            | Arange
            | TimestepEmbedding
            | LeakyRelu
            | RwkvWkv6
            | GatedLinearAttn
            | RwkvWkv7
            | GatedDeltaNet
            | CrossEntropyLoss
            | CrossEntropyLossBack
            | OptStepAdamw
            | OptStepSgd
            | Fill
            | Cumsum
            | Tri
            | Diag
            | SolveTri
            | Argmax
            | CountEqual
    )
}
