# SPDX-License-Identifier: Apache-2.0
# The habits of the project. `just` lists them.

_default:
    @just --list

# Run the platform on this machine
up *ARGS:
    cargo run --release -- up {{ARGS}}

# The tests everybody runs
test *ARGS:
    cargo test --workspace {{ARGS}}

# Formatting, clippy, shell scripts
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    shellcheck .ci/run lab/lab lab/lib/*.sh lab/inside/*.sh

# Costs, measured against a baseline in the same run
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# The suites against real libvirt, QEMU and OpenStack (root, Debian 12)
real:
    lab/lab ci --hosts 3 "cargo test --workspace --test real_libvirt" "cargo test --workspace --test real_lab"

# Start a real fleet and look around in it
lab *ARGS:
    lab/lab {{ARGS}}

# The static program of the agents (Debian: musl-tools; rustup target add x86_64-unknown-linux-musl)
agent:
    cargo build --profile lean --target x86_64-unknown-linux-musl -p cobaltcore-agents

# Its image, one file on nothing; needs buildah
agent-image: agent
    buildah bud --tag cobaltcore-agent --file deploy/image/Containerfile target/x86_64-unknown-linux-musl/lean

# Generated files: the CustomResourceDefinitions in deploy/
generate:
    UPDATE=1 cargo test -p cobaltcore-api

# Ten million damaged frames through the libvirt decoder (minutes)
fuzz:
    cargo test --release -p cobaltcore-libvirt --test fuzz -- --ignored --nocapture

# Write the libvirt decoder's corpus anew
corpus:
    cargo test -p cobaltcore-libvirt --test corpus_writer -- --ignored

# Everything CI runs
ci:
    .ci/run
