"""Two CPU devices for all tests, whatever the machine: what is spread over devices is tested so."""

import jax

jax.config.update("jax_num_cpu_devices", 2)
