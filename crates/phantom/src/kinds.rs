//! Tensor types and operations, identified by their names in the engine.
//!
//! DECISION: their numbers differ between builds, so the name of each number is looked up once and cached. A
//! name that is missing from the lists below is `Other`: an operation that the CUDA backend does not know, or
//! a type that it does not multiply. Source: `ggml.c:GGML_OP_NAME, GGML_UNARY_OP_NAME, GGML_GLU_OP_NAME,
//! type_traits @ b10605`.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU64};

use crate::engine::{self, Functions};

/// Declares an enum whose values are found by their names in the engine.
macro_rules! named {
    ($(#[$about:meta])* $kind:ident { $($value:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $kind { Other, $($value,)* }

        impl $kind {
            const ALL: &'static [Self] = &[Self::Other, $(Self::$value,)*];

            fn named(name: &[u8]) -> Self {
                $(if name == $name.as_bytes() { return Self::$value; })*
                Self::Other
            }

            /// The variant at an index of `ALL`.
            fn at(place: u8) -> Self {
                Self::ALL.get(usize::from(place)).copied().unwrap_or(Self::Other)
            }

            fn place(self) -> u8 {
                Self::ALL.iter().position(|one| *one == self).and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
            }
        }
    };
}

named! {
    /// `enum ggml_op`.
    Op {
        None = "NONE", Dup = "DUP", Add = "ADD", AddId = "ADD_ID", Add1 = "ADD1", Acc = "ACC", Sub = "SUB", Mul = "MUL",
        Div = "DIV", Sqr = "SQR", Sqrt = "SQRT", Log = "LOG", Sin = "SIN", Cos = "COS", Sum = "SUM", SumRows = "SUM_ROWS",
        Cumsum = "CUMSUM", Mean = "MEAN", Argmax = "ARGMAX", CountEqual = "COUNT_EQUAL", Repeat = "REPEAT",
        RepeatBack = "REPEAT_BACK", Concat = "CONCAT", SiluBack = "SILU_BACK", Norm = "NORM", RmsNorm = "RMS_NORM",
        RmsNormBack = "RMS_NORM_BACK", GroupNorm = "GROUP_NORM", L2Norm = "L2_NORM", MulMat = "MUL_MAT",
        MulMatId = "MUL_MAT_ID", OutProd = "OUT_PROD", Scale = "SCALE", Set = "SET", Cpy = "CPY", Cont = "CONT",
        Reshape = "RESHAPE", View = "VIEW", Permute = "PERMUTE", Transpose = "TRANSPOSE", GetRows = "GET_ROWS",
        GetRowsBack = "GET_ROWS_BACK", SetRows = "SET_ROWS", Diag = "DIAG", DiagMaskInf = "DIAG_MASK_INF",
        SoftMax = "SOFT_MAX", SoftMaxBack = "SOFT_MAX_BACK", Rope = "ROPE", RopeBack = "ROPE_BACK", Clamp = "CLAMP",
        ConvTranspose1d = "CONV_TRANSPOSE_1D", Im2col = "IM2COL", Im2col3d = "IM2COL_3D", Col2im1d = "COL2IM_1D",
        Conv2d = "CONV_2D", Conv3d = "CONV_3D", Conv2dDw = "CONV_2D_DW", ConvTranspose2d = "CONV_TRANSPOSE_2D",
        Pool1d = "POOL_1D", Pool2d = "POOL_2D", Upscale = "UPSCALE", Pad = "PAD", PadReflect1d = "PAD_REFLECT_1D",
        Roll = "ROLL", Arange = "ARANGE", TimestepEmbedding = "TIMESTEP_EMBEDDING", Argsort = "ARGSORT", TopK = "TOP_K",
        LeakyRelu = "LEAKY_RELU", Tri = "TRI", Fill = "FILL", FlashAttnExt = "FLASH_ATTN_EXT", SsmConv = "SSM_CONV",
        SsmScan = "SSM_SCAN", RwkvWkv6 = "RWKV_WKV6", GatedLinearAttn = "GATED_LINEAR_ATTN", RwkvWkv7 = "RWKV_WKV7",
        SolveTri = "SOLVE_TRI", GatedDeltaNet = "GATED_DELTA_NET", LightningIndexer = "LIGHTNING_INDEXER",
        Dsv4HcComb = "DSV4_HC_COMB", Dsv4HcPre = "DSV4_HC_PRE", Dsv4HcPost = "DSV4_HC_POST", Unary = "UNARY",
        CrossEntropyLoss = "CROSS_ENTROPY_LOSS", CrossEntropyLossBack = "CROSS_ENTROPY_LOSS_BACK",
        OptStepAdamw = "OPT_STEP_ADAMW", OptStepSgd = "OPT_STEP_SGD", Glu = "GLU",
    }
}

named! {
    /// `enum ggml_type`.
    Type {
        F32 = "f32", F16 = "f16", Bf16 = "bf16", F64 = "f64", I8 = "i8", I16 = "i16", I32 = "i32", I64 = "i64",
        Q1_0 = "q1_0", Q2_0 = "q2_0", Q4_0 = "q4_0", Q4_1 = "q4_1", Q5_0 = "q5_0", Q5_1 = "q5_1", Q8_0 = "q8_0",
        Q8_1 = "q8_1", Mxfp4 = "mxfp4", Nvfp4 = "nvfp4", Q2K = "q2_K", Q3K = "q3_K", Q4K = "q4_K", Q5K = "q5_K",
        Q6K = "q6_K", Q8K = "q8_K", Iq1S = "iq1_s", Iq1M = "iq1_m", Iq2Xxs = "iq2_xxs", Iq2Xs = "iq2_xs",
        Iq2S = "iq2_s", Iq3Xxs = "iq3_xxs", Iq3S = "iq3_s", Iq4Nl = "iq4_nl", Iq4Xs = "iq4_xs",
    }
}

named! {
    /// `enum ggml_unary_op`.
    Unary {
        Abs = "ABS", Sgn = "SGN", Neg = "NEG", Step = "STEP", Tanh = "TANH", Elu = "ELU", Relu = "RELU",
        Sigmoid = "SIGMOID", Gelu = "GELU", GeluQuick = "GELU_QUICK", Silu = "SILU", Hardswish = "HARDSWISH",
        Hardsigmoid = "HARDSIGMOID", Exp = "EXP", Expm1 = "EXPM1", Softplus = "SOFTPLUS", GeluErf = "GELU_ERF",
        Xielu = "XIELU", Floor = "FLOOR", Ceil = "CEIL", Round = "ROUND", Trunc = "TRUNC",
    }
}

named! {
    /// `enum ggml_glu_op`.
    Glu {
        Reglu = "REGLU", Geglu = "GEGLU", Swiglu = "SWIGLU", SwigluOai = "SWIGLU_OAI", GegluErf = "GEGLU_ERF",
        GegluQuick = "GEGLU_QUICK", SwigluClamp = "SWIGLU_CLAMP",
    }
}

/// Memory layout of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Values per block.
    pub(crate) block: u64,
    /// Bytes per block.
    pub(crate) size: u64,
    pub(crate) quantised: bool,
}

const UNKNOWN: u8 = u8::MAX;
/// Bound above the numbers of every build; larger numbers are not looked up.
const MOST: usize = 256;

type Known = [AtomicU8; MOST];
static OPS: Known = [const { AtomicU8::new(UNKNOWN) }; MOST];
static TYPES: Known = [const { AtomicU8::new(UNKNOWN) }; MOST];
static UNARIES: Known = [const { AtomicU8::new(UNKNOWN) }; MOST];
static GLUS: Known = [const { AtomicU8::new(UNKNOWN) }; MOST];

/// The cached index for a number, or the index of its name in the engine.
fn known(
    kept: &Known,
    number: c_int,
    ask: impl FnOnce(&Functions) -> *const c_char,
    named: impl FnOnce(&[u8]) -> u8,
) -> u8 {
    let Some(kept) = usize::try_from(number).ok().and_then(|number| kept.get(number)) else {
        return 0;
    };
    let place = kept.load(Relaxed);
    if place != UNKNOWN {
        return place;
    }
    let Some(engine) = engine::get() else { return 0 };
    let name = ask(&engine.functions);
    if name.is_null() {
        return 0;
    }
    // SAFETY: a constant of the engine that ends in zero.
    let place = named(unsafe { CStr::from_ptr(name) }.to_bytes());
    kept.store(place, Relaxed);
    place
}

impl Op {
    /// The operation with this number, which comes from a tensor and so is valid in the engine.
    pub(crate) fn of(number: c_int) -> Self {
        // SAFETY: a number of the engine's own.
        Self::at(known(
            &OPS,
            number,
            |f| unsafe { (f.ggml_op_name)(number) },
            |name| Self::named(name).place(),
        ))
    }
}

impl Unary {
    pub(crate) fn of(number: c_int) -> Self {
        // SAFETY: as above.
        Self::at(known(
            &UNARIES,
            number,
            |f| unsafe { (f.ggml_unary_op_name)(number) },
            |name| Self::named(name).place(),
        ))
    }
}

impl Glu {
    pub(crate) fn of(number: c_int) -> Self {
        // SAFETY: as above.
        Self::at(known(
            &GLUS,
            number,
            |f| unsafe { (f.ggml_glu_op_name)(number) },
            |name| Self::named(name).place(),
        ))
    }
}

impl Type {
    pub(crate) fn of(number: c_int) -> Self {
        // SAFETY: as above.
        Self::at(known(
            &TYPES,
            number,
            |f| unsafe { (f.ggml_type_name)(number) },
            |name| Self::named(name).place(),
        ))
    }
}

/// Layouts by type number, packed; 0 for those not looked up yet.
static LAYOUTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

impl Layout {
    const NOTHING: Self = Self {
        block: 1,
        size: 0,
        quantised: false,
    };

    /// Layout of the type with this number, as the engine reports it.
    pub(crate) fn of(number: c_int) -> Self {
        let kept = usize::try_from(number)
            .ok()
            .and_then(|number| LAYOUTS.get(number));
        let Some(kept) = kept else { return Self::NOTHING };
        match kept.load(Relaxed) {
            0 => {
                let layout =
                    engine::get().map_or(Self::NOTHING, |engine| Self::ask(&engine.functions, number));
                kept.store(layout.packed(), Relaxed);
                layout
            }
            packed => Self::unpacked(packed),
        }
    }

    fn ask(functions: &Functions, number: c_int) -> Self {
        // SAFETY: a number of the engine's own, since it comes from a tensor.
        let (block, size, quantised) = unsafe {
            (
                (functions.ggml_blck_size)(number),
                (functions.ggml_type_size)(number),
                (functions.ggml_is_quantized)(number),
            )
        };
        Self {
            block: u64::try_from(block).unwrap_or(1).clamp(1, 0xffff),
            size: u64::try_from(size).unwrap_or(0).min(0xffff),
            quantised,
        }
    }

    const fn packed(self) -> u64 {
        self.block | self.size << 16 | (self.quantised as u64) << 32
    }

    const fn unpacked(packed: u64) -> Self {
        Self {
            block: packed & 0xffff,
            size: packed >> 16 & 0xffff,
            quantised: packed >> 32 == 1,
        }
    }
}

#[cfg(test)]
pub(crate) mod known {
    //! Numbers of operations and types for tests that have no engine: each one's place in its list.

    use super::*;

    /// Values per block, bytes per block, and true if quantised.
    const LAYOUT: &[(Type, u64, u64, bool)] = &[
        (Type::F32, 1, 4, false),
        (Type::F16, 1, 2, false),
        (Type::Bf16, 1, 2, false),
        (Type::I32, 1, 4, false),
        (Type::Q4_0, 32, 18, true),
        (Type::Q5_0, 32, 22, true),
        (Type::Q8_0, 32, 34, true),
        (Type::Q4K, 256, 144, true),
        (Type::Iq4Nl, 32, 18, true),
        (Type::Mxfp4, 32, 17, true),
    ];

    fn fill(kept: &Known, count: usize) {
        for (place, kept) in kept.iter().enumerate().take(count) {
            kept.store(u8::try_from(place).unwrap(), Relaxed);
        }
    }

    fn install() {
        fill(&OPS, Op::ALL.len());
        fill(&TYPES, Type::ALL.len());
        fill(&UNARIES, Unary::ALL.len());
        fill(&GLUS, Glu::ALL.len());
        for &(kind, block, size, quantised) in LAYOUT {
            let layout = Layout {
                block,
                size,
                quantised,
            };
            LAYOUTS[usize::from(kind.place())].store(layout.packed(), Relaxed);
        }
    }

    pub(crate) fn op(op: Op) -> c_int {
        install();
        op.place().into()
    }

    pub(crate) fn kind(kind: Type) -> c_int {
        install();
        kind.place().into()
    }

    pub(crate) fn glu(glu: Glu) -> c_int {
        glu.place().into()
    }

    #[test]
    fn names_are_those_of_ggml_and_strangers_are_others() {
        assert_eq!(Op::named(b"MUL_MAT_ID"), Op::MulMatId);
        assert_eq!(Op::named(b"SOMETHING_NEW"), Op::Other);
        assert_eq!(Type::named(b"q4_K"), Type::Q4K);
        assert_eq!(Type::at(Type::Mxfp4.place()), Type::Mxfp4);
        assert_eq!((Op::of(-1), Op::of(5000)), (Op::Other, Op::Other));
        assert_eq!(Layout::of(-7), Layout::NOTHING);
    }
}
