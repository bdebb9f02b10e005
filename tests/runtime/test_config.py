"""corelane's own sections."""

from __future__ import annotations

import json

import pytest

from corelane.runtime import config
from corelane.runtime.config import AppConfig, Config, UserConfig
from corelane.runtime.errors import ConfigError


def test_an_empty_file_is_a_configuration():
    assert config.loads("") == config.load() == Config()
    assert json.loads(json.dumps(config.as_dict(Config())))["iokernel"]["poll"] == "adaptive"


def test_the_sample_says_all_defaults():
    assert config.loads(config.sample()) == Config(apps={"kv": AppConfig()}, users={"65534": UserConfig()})
    assert "socket_mode = 0o660\n" in config.sample()


def test_a_file(tmp_path):
    path = tmp_path / "corelane.toml"
    path.write_text(
        """
        [iokernel]
        cores = [0]
        poll = "spin"
        [nic]
        driver = "af_xdp"
        device = "veth0"
        [apps.kv]
        ip = "10.77.0.9"
        rate_frames_per_s = 1_000_000
        """
    )
    got = config.load(path, ["nic.queues=2", "apps.echo.kthreads=4"])
    assert got.iokernel.cores == (0,)
    assert (got.nic.device, got.nic.queues) == ("veth0", 2)
    assert got.app("kv").rate_frames_per_s == 1_000_000
    assert got.app("echo").kthreads == 4
    assert got.app("other") == AppConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[iokernel]\npol = "spin"', "iokernel.pol: no such option (did you mean 'poll'?)"),
        ('[iokernel]\npoll = "fast"', 'is "fast" (expected one of "spin", "adaptive", "block")'),
        ('[iokernel]\ncores = "all"', 'expected "auto" or a list of CPU numbers'),
        ("[iokernel]\ncores = [1, 1]", "expected each CPU once"),
        ("[iokernel]\ncores = [-1]", "is -1"),
        (f'[iokernel]\nsocket = "{"x" * 108}"', "a path of at most 107 bytes"),
        ('[nic]\ndriver = "tap"', "nic: driver 'tap' needs `device`"),
        ('[nic]\ndriver = "pcap"', "nic: driver 'pcap' needs `device`"),
        ("[nic.fault]\nloss = 2", "expected a number from 0 to 1"),
        ("[iokernel]\nmax_apps = 257", "from 1 to 256"),
        ("[iokernel]\nusers = [-1]", "is -1"),
        ("[iokernel]\ngroups = [1.5]", "a text in quotes or a whole number"),
        ('[network]\nhost_address = "10.78.0.1"', "network.host_address 10.78.0.1 is outside"),
        ('[nic]\ndriver = "tap"\ndevice = "t"\n[apps.a]\nip = "10.77.0.1"', "is this machine's own"),
        ("[apps.a]\nloop = 16", "from 0 to 15"),
        ("[nic]\nring_slots = 100", "expected a power of two"),
        ('[network]\nsubnet = "10.77.0.1/16"', "expected an IPv4 network like '10.77.0.0/16'"),
        ('[network]\nsubnet = "10.0.0.0/31"', "8 to 30 bits"),
        ('[network]\ngateway = "10.77.0"', "expected an IPv4 address like"),
        ('[apps.kv]\nmac = "01:00:00:00:00:01"', "a unicast MAC address"),
        ('[apps.kv]\nmac = "02-00"', "expected a MAC address like"),
        ('[apps.kv]\nip = "192.168.0.1"', "outside of network.subnet"),
        ('[apps.a]\nip = "10.77.0.1"\n[apps.b]\nip = "10.77.0.1"', "apps 'a' and 'b' have the same ip"),
        ('[apps.a]\nip = "10.77.0.0"', "apps.a.ip 10.77.0.0 is the network's own or its broadcast address"),
        ('[apps.a]\nip = "10.77.255.255"', "is the network's own or its broadcast address"),
        ('[network]\nsubnet = "224.0.0.0/8"', "for hosts"),
        ('[network]\nsubnet = "127.0.0.0/8"', "for hosts"),
        ("[apps.a]\nusers = [-1]", "is -1"),
        ("[app_defaults]\nusers = [1]", "app_defaults has no users or groups"),
        ("[users.1]\nweight = 0", "from 1 to 1000"),
        ("[users.4294967295]", "a user's name, or an id of 0 to 4294967294"),
        ('[app_defaults]\nip = "10.77.0.1"', "app_defaults cannot give an address"),
        ('[apps."no spaces"]', "the name 'no spaces' cannot be used"),
        (f"[apps.{'x' * 32}]", "1 to 31 letters"),
    ],
)
def test_what_is_refused(text, said):
    with pytest.raises(ConfigError) as caught:
        config.loads(text, "corelane.toml")
    assert said in str(caught.value)
    assert str(caught.value).startswith("corelane.toml")


def test_what_applications_get_of_the_cores():
    got = config.loads(
        """
        [cores]
        policy = "fair"
        interval_us = 20
        [policy]
        slice_us = 100
        [apps.job]
        class = "batch"
        guaranteed_cores = 1
        max_cores = 2
        weight = 3
        deadline_us = 0
        """,
        overrides=["policy.calm=2", "cores.cede_us=30"],
    )
    assert (got.cores.policy, got.cores.interval_us, got.cores.cede_us) == ("fair", 20, 30)
    assert got.policy == {"slice_us": 100, "calm": 2}
    job = got.app("job")
    assert (job.class_, job.guaranteed_cores, job.max_cores, job.weight) == ("batch", 1, 2, 3)
    assert (job.deadline_us, job.quantum_us) == (0, None), "0 overrules a wish, nothing does not"
    with pytest.raises(ConfigError, match=r"apps\.job\.guaranteed_cores 3 is more than max_cores 2"):
        config.loads("[apps.job]\nguaranteed_cores = 3\nmax_cores = 2")
    with pytest.raises(ConfigError, match="expected the name of one of the policy's settings"):
        config.loads("[policy]\n'a b' = 1")
