// Command mpi-operator runs the real mpi-operator's controller as a plain process on loopback.
//
// Upstream's own command serves its health on port 8080 of every address and ends where that is
// taken, so that two could not run on one host. This is upstream's command without that and without
// an election of a leader: the same controller, set up as cmd/mpi-operator does.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	mpijobclientset "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	kubeflowscheme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	informers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	kubeapiserver "k8s.io/apiserver/pkg/server"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mpi-operator:", err)
		os.Exit(1)
	}
}

func run() error {
	// Upstream's flags; those of what is left out have no effect. Gangs are not scheduled here.
	opt := options.NewServerOption()
	opt.AddFlags(flag.CommandLine)
	flag.Parse()
	if opt.GangSchedulingName != "" {
		return fmt.Errorf("--gang-scheduling=%s: none is set up here; leave it out", opt.GangSchedulingName)
	}
	config, err := clientcmd.BuildConfigFromFlags(opt.MasterURL, opt.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(opt.QPS), opt.Burst
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	jobs, err := mpijobclientset.NewForConfig(config)
	if err != nil {
		return err
	}
	// Its events name MPIJobs.
	if err := kubeflowscheme.AddToScheme(clientgoscheme.Scheme); err != nil {
		return err
	}

	ctx := kubeapiserver.SetupSignalContext()
	objects := kubeinformers.NewSharedInformerFactory(kube, 0)
	own := informers.NewSharedInformerFactory(jobs, 0)
	mpi, err := controller.NewMPIJobController(
		ctx, kube, jobs, nil, nil,
		objects.Core().V1().ConfigMaps(),
		objects.Core().V1().Secrets(),
		objects.Core().V1().Services(),
		objects.Batch().V1().Jobs(),
		objects.Core().V1().Pods(),
		objects.Scheduling().V1().PriorityClasses(),
		own.Kubeflow().V2beta1().MPIJobs(),
		opt)
	if err != nil {
		return err
	}
	objects.Start(ctx.Done())
	own.Start(ctx.Done())
	return mpi.Run(opt.Threadiness, ctx.Done())
}
