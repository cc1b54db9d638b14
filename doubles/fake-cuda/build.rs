//! Build script of the fake driver: it sets the library's soname to `libcuda.so.1`.
//!
//! Programs linked with `-lcuda` load the library by that soname.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // As in NVIDIA's library, what it says of itself is never another object's symbol.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
