"""What the document prints of its dot-product series; taken from it, not from the CSVs."""

from __future__ import annotations

from typing import NamedTuple


class Held(NamedTuple):
    """A printed series: its points, ends, largest value, sum, and the hash of ``x,y`` lines."""

    points: int
    first_x: int
    last_x: int
    first: float
    last: float
    largest: float
    total: float
    sha256: str


HELD = {
    ("running_time", "AVX (double)"): Held(
        22,
        64,
        134217728,
        1.949637302896928e-05,
        87.05357142857143,
        87.05357142857143,
        172.98410383018785,
        "55f29df4a250c71cf370d6de9904513c580fd651c590841e1ff4699de6618668",
    ),
    ("running_time", "AVX (float)"): Held(
        22,
        64,
        134217728,
        1.6113281142098564e-05,
        46.875,
        46.875,
        91.78617179442132,
        "27e3f6373d11df552e0ecd09999172a1f7703032dcad78e4d03e998332c2b23c",
    ),
    ("running_time", "CUDA (double)"): Held(
        22,
        64,
        134217728,
        2.4434156378600824,
        179.03805,
        179.03805,
        416.17320686037505,
        "d2892700203c745d2ab4cf558568ad552a9e4e38383af17aa83968126b1d9937",
    ),
    ("running_time", "CUDA (float)"): Held(
        22,
        64,
        134217728,
        1.9736842105263157,
        91.2033125,
        91.2033125,
        244.22364724815174,
        "41180b9ef9a0cbaa3be78479bc44f4ffc1fd8ab4ad907e51c236803e1045358c",
    ),
    ("throughput", "PCI-Express 3.0 x16"): Held(
        2,
        128,
        268435456,
        15.5,
        15.5,
        15.5,
        31.0,
        "2b6b00b0cd7a2a859eec00ec7bf54f6f2e3007f747c27884e5fb857018150fb6",
    ),
    ("throughput", "NVIDIA bandwidthtest.cu device-to-host"): Held(
        2,
        128,
        268435456,
        11.8,
        11.8,
        11.8,
        23.6,
        "751fe87563cd4cf75cfa2ac95fa7b8f23d6a50c8045ab3ad123a6dff6fd5f99c",
    ),
    ("throughput", "CUDA (double)"): Held(
        22,
        128,
        268435456,
        0.00041908547368421054,
        11.99456566914128,
        11.99456566914128,
        77.76152714783778,
        "7056580bef7ba0e731ea147e3369f0845f8e35275a337e21a44107362d148bad",
    ),
    ("throughput", "CUDA (float)"): Held(
        22,
        128,
        268435456,
        0.0002594133333333333,
        11.77305729986507,
        11.77305729986507,
        64.24499742080943,
        "df2b006f4755ad3f98b0cf44e62ce4c94c7cc38474b5f819f8f95fcec696b216",
    ),
    ("running_time_square", "CUDA (double)"): Held(
        22,
        64,
        134217728,
        2.4434156378600824,
        179.03805,
        179.03805,
        416.17320686037505,
        "d2892700203c745d2ab4cf558568ad552a9e4e38383af17aa83968126b1d9937",
    ),
    ("running_time_square", "CUDA (float)"): Held(
        22,
        64,
        134217728,
        1.9736842105263157,
        91.2033125,
        91.2033125,
        244.22364724815174,
        "41180b9ef9a0cbaa3be78479bc44f4ffc1fd8ab4ad907e51c236803e1045358c",
    ),
    ("running_time_square", "CUDA (square) (double)"): Held(
        22,
        64,
        134217728,
        2.0337301587301586,
        92.0157875,
        92.0157875,
        232.77618664500037,
        "f15172313364f4a251b2c0f94b986650f805a3f054fb66a73ab7c7eae32a1922",
    ),
    ("running_time_square", "CUDA (square) (float)"): Held(
        22,
        64,
        134217728,
        2.0448825503355703,
        46.250186666666664,
        46.250186666666664,
        149.6741891415709,
        "a924961dc755fee706e5280e51ae02abf50680a8d2d32c6608c1d58d3c50bc3e",
    ),
    ("throughput_square", "PCI-Express 3.0 x16"): Held(
        2,
        64,
        134217728,
        15.5,
        15.5,
        15.5,
        31.0,
        "375ce00b1db36de47c918d93768a2d056cb86b23557e0e0b2b6ae84ef625d399",
    ),
    ("throughput_square", "NVIDIA bandwidthtest.cu device-to-host"): Held(
        2,
        64,
        134217728,
        11.8,
        11.8,
        11.8,
        23.6,
        "1995a6da2b90aba16516399e22901791a697fde6301683e07a2f84ece0ea863a",
    ),
    ("throughput_square", "CUDA (square) (double)"): Held(
        22,
        64,
        134217728,
        0.0002517541463414635,
        11.669104326254883,
        11.769131710054616,
        67.41370871612705,
        "27d32ebf3853386a1cb5d0523016ffc583b9f6f1ed2c66623faa50d6f58c8f8a",
    ),
    ("throughput_square", "CUDA (square) (float)"): Held(
        22,
        64,
        134217728,
        0.0001251905641025641,
        11.607972868722117,
        11.607972868722117,
        55.05245438666726,
        "36a2efc31ef48e508752ffd836fb0f2dcc1a50f5ec0c554521b957261f223633",
    ),
}
