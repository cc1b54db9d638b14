//! Arrays and mipmapped arrays.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
