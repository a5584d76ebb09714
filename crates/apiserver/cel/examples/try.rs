// SPDX-License-Identifier: Apache-2.0
#[path = "../tests/support/mod.rs"] mod support;
fn main(){ for line in std::io::stdin().lines(){ let l=line.unwrap(); match cobaltcore_cel::compile(&l,&support::env()){Ok(p)=>println!("ok {} est={} => {}",l,p.estimated_cost(),support::run(&l)),Err(e)=>println!("{e}")} println!("---"); } }
