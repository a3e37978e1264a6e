from reaper.api.rates import Rates


def test_burst_then_the_sustained_rate():
    rates = Rates(per_minute=60, burst=2)

    assert [rates.take("a", 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert rates.take("a", 0.5) == 0.5
    assert rates.take("a", 1.0) == 0.0
    assert rates.take("b", 1.0) == 0.0


def test_rest_never_saves_up_more_than_the_burst():
    rates = Rates(per_minute=60, burst=2)
    rates.take("a", 0.0)

    assert [rates.take("a", 1e6) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_asking_uses_nothing_up():
    rates = Rates(per_minute=60, burst=1)

    assert [rates.wait("a", 0.0) for _ in range(3)] == [0.0] * 3
    rates.take("a", 0.0)
    assert rates.wait("a", 0.0) == 1.0


def test_keys_are_bounded():
    rates = Rates(per_minute=60, burst=1, most=100)
    for n in range(1000):
        rates.take(str(n), 0.0)

    assert len(rates) == 100
    assert rates.take("999", 0.0) > 0.0
