// SPDX-License-Identifier: Apache-2.0
#[path = "../tests/support/mod.rs"] mod support;
use cobaltcore_cel::*; use std::sync::Arc;
fn main(){
 let num=|m|DeclType::List{element:Arc::new(DeclType::Double),kind:ListKind::Atomic,max:m};
 let st=|m|DeclType::List{element:Arc::new(DeclType::String{max:None}),kind:ListKind::Atomic,max:m};
 let sst=|m:Option<u64>|DeclType::List{element:Arc::new(DeclType::String{max:m}),kind:ListKind::Atomic,max:m};
 let map=|m|DeclType::Map{value:Arc::new(DeclType::Double),max:m};
 let s=|m|DeclType::String{max:m};
 let by=|m|DeclType::Bytes{max:m};
 let ios=|m|DeclType::List{element:Arc::new(DeclType::Dyn),kind:ListKind::Atomic,max:m};
 let aa=|m|DeclType::List{element:Arc::new(num(m)),kind:ListKind::Atomic,max:m};
 let ma=|m|DeclType::List{element:Arc::new(map(m)),kind:ListKind::Atomic,max:m};
 let dur=|m|DeclType::List{element:Arc::new(DeclType::Duration),kind:ListKind::Atomic,max:m};
 let ms=|m:Option<u64>|DeclType::Map{value:Arc::new(DeclType::String{max:m}),max:m};
 let rep=|m:Option<u64>|support::object("o",&[("str",s(m)),("before",s(m)),("after",s(m)),("separator",s(m))]);
 let cases:Vec<(&str,&dyn Fn(Option<u64>)->DeclType,u64,u64,u64)>=vec![
 ("self.all(x, true)",&num,4718591,10,32),("self.all(x, true)",&st,3145727,20,62),("self.all(x, true)",&map,1348169,10,32),("has(self.x)",&map,0,100,0),
 ("self.contains('test')",&s,314574,10,5),("self.startsWith('test')",&s,2,15,2),("size(self + \"hello\") > size(\"hello\")",&s,314578,4,7),
 ("self[1] == 0.0",&num,2,5000,2),("self[1] == self[1]",&st,314577,8,314577),("self.all(x, self.all(y, true))",&num,0,10,352),("self.all(x, self.all(y, self.all(z, true)))",&num,0,10,3552),
 ("self.matches(\"x\")",&s,314574,50,22),("\"\".matches(\"(((((((((())))))))))[0-9]\")",&s,7,10,7),("self.matches(\"\")",&s,1,100,1),
 ("self.all(x, x.contains(self[x]))",&ms,2752507,10,72),("self[\"x\"] == 0.0",&map,2,0,2),("self == \"x\"",&s,2,0,1),("self == b\"x\"",&by,2,0,1),
 ("self.all(x, x == 0.0)",&num,6291454,3*1024*2048,25165826),("self.all(x, true)",&ios,4718591,10,32),("self[0] == 5",&ios,3,10,3),("self[0][0] == -1.0",&aa,3,51,3),
 ("self.all(x, x.y == 25.2)",&ma,6291452,12,74),("self[0].x > 2.0",&ma,4,3000,4),("self.all(x, true)",&dur,2359295,5,17),("self[0].getHours() == 2",&dur,4,525,4),
 ("self.find('[0-9]+') == ''",&s,629147,10,11),("self.join(' ') == 'aa bb'",&sst,329853068905,10,43),("self.isSorted() == true",&sst,329854432052,10,52),
 ("self.str.replace(self.before, self.after) == 'does not matter'",&rep,629154,4,12),("self.str.split(self.separator) == []",&rep,629160,10,22),("self.lowerAscii() == 'lower!'",&s,314575,10,6),
 ("oldSelf.size() == self.size()",&map,5,10,5),
 ];
 for (e,t,c,m,w) in cases { let f=|m|{let ty=t(m); compile(e,&Env::new().variable("self",ty.clone()).variable("oldSelf",ty)).map(|p|p.estimated_cost())};
  let a=f(None); let b=f(Some(m)); println!("{} {e}: calc {:?} want {c}; set {:?} want {w}", if a==Ok(c)&&b==Ok(w){"OK  "}else{"DIFF"},a,b); } }
