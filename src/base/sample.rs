//! Random choice without repetition.

/// Selects `count` of `items`, of which there are `len`, at random and in their order (all, if there are fewer), each
/// choice equally likely. This is selection sampling (Knuth, TAOCP vol. 2, 3.4.2, algorithm S). `below(n)` draws a
/// number in `0..n`.
pub(crate) fn select<I: Iterator>(
    items: I,
    len: usize,
    count: usize,
    mut below: impl FnMut(u64) -> u64,
) -> impl Iterator<Item = I::Item> {
    let mut left = len;
    let mut wanted = count.min(len);
    items.take(len).filter(move |_| {
        let chosen = below(left as u64) < wanted as u64;
        left -= 1;
        wanted -= usize::from(chosen);
        chosen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_requested_size() {
        let mut state = 7u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let mut chosen = [0u32; 20];
        for count in 0..=25 {
            for _ in 0..100 {
                let items: Vec<usize> = select(0..20, 20, count, &mut below).collect();
                assert_eq!(items.len(), count.min(20));
                items.iter().for_each(|i| chosen[*i] += 1);
            }
        }
        let mean = (0..=25).map(|count: u32| count.min(20) * 100).sum::<u32>() / 20;
        assert!(chosen.iter().all(|n| n.abs_diff(mean) < 120), "{chosen:?} around {mean}");
    }
}
