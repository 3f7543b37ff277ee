"""A launch overlaps only where its stream has launched these weights since they were written."""

from __future__ import annotations

import threading

import pytest
import torch

from humming_runtime.torch_layer.plan_cache import MOST_STREAMS, Call, PlanCache, PlanKey

KEY = PlanKey("config", 16, 64, 0, 1, 2, 3, 4)


class RecordingPlan:
    def __init__(self, key):
        self.key = key
        self.overlaps = []
        self.fails = False
        self.captured = set()

    def is_capturing(self, stream):
        return stream in self.captured

    def prepare(self, sizes):
        pass

    def launch(self, *_place, overlap, **_rest):
        if self.fails:
            raise RuntimeError("no kernel")
        self.overlaps.append(overlap)


def call(stream=1):
    return Call(1, 0, 64, 0, 16, stream, 0)


def cache_and_weights(most=8):
    return PlanCache(RecordingPlan, most), (torch.zeros(4), torch.zeros(4))


def launched(cache, weights, *streams):
    """Overlaps of one launch a stream."""
    entry = cache.entry(KEY)
    before = len(entry.plan.overlaps)
    for stream in streams:
        entry.launch(weights, call(stream))
    return entry.plan.overlaps[before:]


def test_the_first_launch_of_each_stream_does_not_overlap():
    cache, weights = cache_and_weights()
    assert launched(cache, weights, 1, 1, 2, 1, 2) == [False, True, False, True, True]


def test_a_captured_launch_overlaps_once_any_stream_has_launched_the_weights():
    cache, weights = cache_and_weights()
    cache.entry(KEY).plan.captured.add(7)
    assert launched(cache, weights, 7, 1, 7, 7) == [False, False, True, True]


def test_a_captured_launch_after_a_write_of_its_own_capture_does_not_overlap():
    cache, weights = cache_and_weights()
    cache.entry(KEY).plan.captured.add(7)
    launched(cache, weights, 1)
    weights[0].add_(1)
    assert launched(cache, weights, 7) == [False]


def test_a_capture_does_not_make_its_stream_known():
    cache, weights = cache_and_weights()
    plan = cache.entry(KEY).plan
    plan.captured.add(7)
    launched(cache, weights, 1, 7)
    plan.captured.clear()
    assert launched(cache, weights, 7) == [False]


def test_a_write_to_any_weight_tensor_is_seen_by_every_stream():
    cache, weights = cache_and_weights()
    launched(cache, weights, 1, 2)
    weights[1].add_(1)
    assert launched(cache, weights, 1, 1, 2) == [False, True, False]


def test_other_tensors_at_the_same_addresses_do_not_overlap_at_first():
    cache, weights = cache_and_weights()
    launched(cache, weights, 1)
    others = tuple(tensor.view(-1) for tensor in weights)
    del weights
    assert launched(cache, others, 1, 1) == [False, True]


def test_a_launch_that_failed_does_not_count():
    cache, weights = cache_and_weights()
    entry = cache.entry(KEY)
    entry.plan.fails = True
    with pytest.raises(RuntimeError, match="no kernel"):
        entry.launch(weights, call())
    entry.plan.fails = False
    assert launched(cache, weights, 1, 1) == [False, True]


def test_tensors_without_a_version_counter_never_overlap():
    cache, _ = cache_and_weights()
    with torch.inference_mode():
        weights = (torch.zeros(4),)
    assert launched(cache, weights, 1, 1, 1) == [False, False, False]


def test_a_write_that_was_told_of_is_seen():
    cache, weights = cache_and_weights()
    launched(cache, weights, 1)
    weights[0].data.add_(1)
    cache.forget_writes(KEY.weight)
    assert launched(cache, weights, 1, 1) == [False, True]


def test_streams_that_come_and_go_are_forgotten():
    cache, weights = cache_and_weights()
    launched(cache, weights, *range(MOST_STREAMS))
    assert launched(cache, weights, MOST_STREAMS, 0, 0) == [False, False, True]


def test_the_cache_is_bounded_and_keeps_what_was_used_last():
    cache, _ = cache_and_weights(most=2)
    first = cache.entry(KEY)
    cache.entry(KEY._replace(n=32))
    assert cache.entry(KEY) is first
    cache.entry(KEY._replace(n=48))
    assert len(cache) == 2
    assert cache.entry(KEY) is first


def test_every_part_of_the_key_makes_another_plan():
    cache, _ = cache_and_weights(most=64)
    for name in KEY._fields:
        other = KEY._replace(**{name: "other" if name == "config" else 99})
        assert cache.entry(other) is not cache.entry(KEY)


def test_threads_share_one_plan_and_none_of_their_launches_is_lost():
    cache, weights = cache_and_weights()
    threads = [
        threading.Thread(target=launched, args=(cache, weights, *[1] * 200)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 1
    assert cache.entry(KEY).plan.overlaps == [False] + [True] * 799
