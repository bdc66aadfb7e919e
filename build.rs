//! Generates the Rust types and clients from `proto/`, with protox in place of a `protoc` binary, and keeps their descriptors.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTOS: [&str; 3] = ["proto/podresources/v1.proto", "proto/podresources/v1alpha1.proto", "proto/pods/v1alpha1.proto"];
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(PROTOS)?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run this through cargo")?);
    std::fs::write(out.join("podresources.binpb"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().build_transport(false).compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
