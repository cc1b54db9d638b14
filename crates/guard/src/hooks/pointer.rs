//! What the program may know of an address in guard's own ranges.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
