from .comparing import CompareError as CompareError
from .comparing.compare import Comparison as Comparison
from .comparing.compare import compare as compare
from .comparing.false_alarms import false_alarms as false_alarms
from .comparing.history import History as History
from .core.errors import DeviceError as DeviceError
from .core.space import Cell as Cell
from .core.space import Problem as Problem
from .explorer.explore import ExplorerError as ExplorerError
from .explorer.explore import explore as explore
from .exporting.choices import ExportError as ExportError
from .exporting.write import Exported as Exported
from .exporting.write import export as export
from .interactive.history import history as history
from .interactive.measure import Sweep as Sweep
from .interactive.measure import sweep as sweep
from .interactive.predict import Prediction as Prediction
from .interactive.predict import predict as predict
from .interactive.versus import Versus as Versus
from .interactive.versus import versus as versus
from .planning.config_schema import ConfigError as ConfigError
from .workloads.contract import BufferRef as BufferRef
from .workloads.contract import CopyWorkload as CopyWorkload
from .workloads.contract import Curve as Curve
from .workloads.contract import HeatMap as HeatMap
from .workloads.contract import Launch as Launch
from .workloads.contract import NullRef as NullRef
from .workloads.contract import ReducingWorkload as ReducingWorkload
from .workloads.contract import SharedMemory as SharedMemory
from .workloads.contract import SurfaceRef as SurfaceRef
from .workloads.contract import TextureRef as TextureRef
from .workloads.contract import WorkingSet as WorkingSet
from .workloads.contract import Workload as Workload
from .workloads.contract import ceil_div as ceil_div

PROTOCOL_VERSION: int
__version__: str
