//! Programs that were linked with `-lcuda` ask for this name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // As in NVIDIA's library, what it says of itself is never another object's symbol.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
