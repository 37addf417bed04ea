"""Property tests are judged by what they find, not by how long a busy machine takes to draw an example."""

from hypothesis import HealthCheck, settings

settings.register_profile("aiocontroller", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("aiocontroller")
