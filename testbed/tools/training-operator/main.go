// Command training-operator runs the real Kubeflow training-operator's controllers as a plain
// process on loopback.
//
// Upstream's own command always starts its validating webhook, whose port is open on every
// address and whose certificate lies in a folder that two processes of one host would share. A
// testbed may do neither, and needs no validation: what it runs was validated on the control
// plane. So this is upstream's command without the webhook: the same controllers, scheme and
// gang scheduling, set up as cmd/training-operator.v1 does.
package main

import (
	"flag"
	"fmt"
	"os"

	kubeflowv1 "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	controllerv1 "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	volcanoclient "volcano.sh/apis/pkg/client/clientset/versioned"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "training-operator:", err)
		os.Exit(1)
	}
}

func run() error {
	// --kubeconfig is registered by controller-runtime itself.
	var schemes controllerv1.EnabledSchemes
	probe := flag.String("health-probe-bind-address", "127.0.0.1:8081", "address of /healthz and /readyz; 0 for none")
	gang := flag.Bool("volcano", false, "schedule gangs by Volcano: make a PodGroup for each job")
	flag.Var(&schemes, "enable-scheme", "kind to run, such as pytorchjob; may be repeated; its CRD must be there")
	flag.StringVar(&config.Config.PyTorchInitContainerImage, "pytorch-init-container-image",
		config.PyTorchInitContainerImageDefault, "image of the container that waits for the master")
	config.Config.PyTorchInitContainerTemplateFile = config.PyTorchInitContainerTemplateFileDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	flag.Parse()
	if schemes.Empty() {
		return fmt.Errorf("name at least one kind with --enable-scheme")
	}

	ctrl.SetLogger(zap.New())
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme(),
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probe,
	})
	if err != nil {
		return err
	}
	if err := manager.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("readyz", healthz.Ping); err != nil {
		return err
	}
	if err := addControllers(manager, schemes, *gang); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kubeflowv1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	return scheme
}

func addControllers(manager ctrl.Manager, schemes controllerv1.EnabledSchemes, gang bool) error {
	setup := common.GenNonGangSchedulerSetupFunc()
	if gang {
		setup = common.GenVolcanoSetupFunc(volcanoclient.NewForConfigOrDie(manager.GetConfig()))
	}
	for _, kind := range schemes {
		if err := controllerv1.SupportedSchemeReconciler[kind](manager, setup, 1); err != nil {
			return fmt.Errorf("controller of %s: %w", kind, err)
		}
	}
	return nil
}
