use lens_runtime::rl_span;

#[rl_span(group = Reward, name = "a")]
fn moved(list: Vec<u32>) -> usize {
    drop(list);
    list.len()
}

#[rl_span(group = Reward, name = "b")]
async fn moved_async(list: Vec<u32>) -> usize {
    drop(list);
    list.len()
}

#[rl_span(group = Reward, name = "c")]
fn borrowed(mut list: Vec<u32>) -> usize {
    let first = &list[0];
    list.push(1);
    *first as usize
}

#[rl_span(group = Reward, name = "d")]
fn dangling(list: &[u32]) -> &u32 {
    let own = list.to_vec();
    &own[0]
}

#[rl_span(group = Reward, name = "e")]
async fn not_mutable(list: Vec<u32>) {
    list.push(1);
}

fn main() {}
