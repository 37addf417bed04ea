"""Values as brokers read and show them."""

import pytest

from aiocontroller.zookeeper.config_def import ConfigType, elements, java_double, release, text_of


@pytest.mark.parametrize(
    "number, text",
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (2147483647.0, "2.147483647E9"),
        (-1.5e-7, "-1.5E-7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_as_java_writes_them(number, text):
    assert java_double(number) == text


@pytest.mark.parametrize(
    "kind, value, text",
    [
        (ConfigType.BOOLEAN, " TRUE ", "true"),
        (ConfigType.INT, " +5", "5"),
        (ConfigType.LONG, "-1", "-1"),
        (ConfigType.LONG, "damaged", "damaged"),
        (ConfigType.DOUBLE, "0.30", "0.3"),
        (ConfigType.DOUBLE, "1d", "1.0"),
        (ConfigType.LIST, " a , b,c ", "a,b,c"),
        (ConfigType.LIST, "  ", ""),
        (ConfigType.STRING, " kept ", " kept "),
    ],
)
def test_values_as_brokers_show_them(kind, value, text):
    assert text_of(kind, value) == text


def test_lists():
    assert elements("") == []
    assert elements("a,,b ,") == ["a", "", "b", ""]


@pytest.mark.parametrize("value", ["3.0-IV1", "2.8", "0.10.2-IV0", "3.9.1"])
def test_releases(value):
    assert release(value) is None


@pytest.mark.parametrize("value", ["", "5.0", "3.0-IVx", "0.7"])
def test_no_releases(value):
    assert release(value) is not None
