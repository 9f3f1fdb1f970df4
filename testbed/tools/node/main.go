// Command node is the device plugin of the testbed's real nodes. It offers devices that do not exist, through the API
// by which the plugins of vendors offer theirs.
//
//	node --resource=nvidia.com/gpu --devices=FILE
//
// FILE has a line "ID HEALTH" for each device, where HEALTH is Healthy or Unhealthy; it is read again whenever it
// changes. A line "refuse MESSAGE" makes the plugin refuse to give devices to containers. A container gets the ids of
// its devices in NVIDIA_VISIBLE_DEVICES.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// How often the file and the kubelet's socket are looked at.
const period = 200 * time.Millisecond

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource, devices string
}

func main() {
	var p plugin
	flag.StringVar(&p.resource, "resource", "", "the resource that the devices are of")
	flag.StringVar(&p.devices, "devices", "", "the file with the devices")
	flag.Parse()
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// run serves one kubelet after another: each removes the sockets that it finds when it starts.
func (p *plugin) run() error {
	for {
		kubelet, err := os.Stat(api.KubeletSocket)
		if err != nil {
			time.Sleep(period)
			continue
		}
		if err := p.serve(kubelet); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			time.Sleep(period)
		}
	}
}

// serve registers at a kubelet and serves it until another one has its socket.
func (p *plugin) serve(kubelet os.FileInfo) error {
	name := strings.ReplaceAll(p.resource, "/", "-") + ".sock"
	socket := filepath.Join(api.DevicePluginPath, name)
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	defer server.Stop()
	if err := p.register(name); err != nil {
		return err
	}
	for {
		time.Sleep(period)
		now, err := os.Stat(api.KubeletSocket)
		if err != nil || !os.SameFile(kubelet, now) {
			return nil
		}
	}
}

func (p *plugin) register(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = api.NewRegistrationClient(connection).Register(ctx, &api.RegisterRequest{
		Version:      api.Version,
		Endpoint:     name,
		ResourceName: p.resource,
		Options:      &api.DevicePluginOptions{},
	})
	return err
}

// read returns the devices of the file, and why none is given to containers, if so.
func (p *plugin) read() (devices []*api.Device, refusal string, err error) {
	text, err := os.ReadFile(p.devices)
	if err != nil {
		return nil, "", err
	}
	for _, line := range strings.Split(string(text), "\n") {
		id, rest, found := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case id == "":
		case id == "refuse":
			refusal = rest
		case found && (rest == api.Healthy || rest == api.Unhealthy):
			devices = append(devices, &api.Device{ID: id, Health: rest})
		default:
			return nil, "", fmt.Errorf("%s: %q is none of: ID Healthy, ID Unhealthy, refuse MESSAGE", p.devices, line)
		}
	}
	return devices, refusal, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices, and again when they have changed.
func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	var sent string
	for {
		devices, _, err := p.read()
		if err != nil {
			return err
		}
		if now := fmt.Sprint(devices); now != sent {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
				return err
			}
			sent = now
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(period):
		}
	}
}

// Allocate is called when a pod with devices is admitted.
func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	_, refusal, err := p.read()
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return nil, errors.New(refusal)
	}
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := strings.Join(container.DevicesIds, ",")
		response.ContainerResponses = append(response.ContainerResponses, &api.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": ids},
		})
	}
	return response, nil
}
